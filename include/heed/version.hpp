// The version of heed.
#pragma once

#include <string_view>

#include "heed/export.hpp"

namespace heed {

/// "0.1.0".
[[nodiscard]] HEED_API std::string_view version() noexcept;

}  // namespace heed
