// The headers that most tests include, precompiled unless HEED_QUICK_BUILD=OFF. Each test still includes all
// that it uses.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "heed/attention/attention.hpp"
#include "heed/attention/backward.hpp"
#include "heed/error.hpp"
#include "heed/inspect/reports.hpp"
#include "heed/io/tensors.hpp"
#include "heed/nn/layers.hpp"
#include "heed/parallel.hpp"
#include "heed/random.hpp"
#include "heed/tensor.hpp"
