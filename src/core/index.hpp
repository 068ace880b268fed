#pragma once

#include <cstddef>
#include <cstdint>

namespace heed::detail {

/// Converts a size or position of heed to the index type of standard containers.
inline std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }

/// The first of `size` places in bin `bin` of `bins`: the least i with floor(i * bins / size) = bin.
inline std::int64_t begin_of_bin(std::int64_t bin, std::int64_t bins, std::int64_t size) {
  return (bin * size + bins - 1) / bins;
}

}  // namespace heed::detail
