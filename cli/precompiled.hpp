// Precompiled header of the command (unless HEED_QUICK_BUILD=OFF). Each source still includes what it uses.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iostream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/attention/attention.hpp"
#include "heed/error.hpp"
#include "heed/inspect/reports.hpp"
#include "heed/tensor.hpp"
