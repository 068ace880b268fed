// The headers that most sources include, parsed once (HEED_QUICK_BUILD=OFF does without). Each source
// still includes what it uses.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/attention/attention.hpp"
#include "heed/attention/backward.hpp"
#include "heed/error.hpp"
#include "heed/inspect/reports.hpp"
#include "heed/io/tensors.hpp"
#include "heed/nn/layers.hpp"
#include "heed/parallel.hpp"
#include "heed/tensor.hpp"
