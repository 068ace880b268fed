#pragma once

#include <cstddef>
#include <cstdint>

namespace heed::detail {

/// A size or position of heed's as an index of a standard container.
inline std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }

}  // namespace heed::detail
