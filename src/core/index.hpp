#pragma once

#include <cstddef>
#include <cstdint>

namespace heed::detail {

/// Converts a size or position of heed to the index type of standard containers.
inline std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }

}  // namespace heed::detail
