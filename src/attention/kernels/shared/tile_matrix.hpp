// The memory layout of operands and results of matrix tiles.
#pragma once

#include <cstdint>

namespace heed::detail::HEED_ISA {

/// Tiles of 16 rows of 16 floats; rows are `stride` floats apart. `next` is the distance to the adjacent
/// tile. In an operand, `step` is the distance to the next tile of the summation, and `part` to the same tile
/// of the next part. In a result, `next` goes along the columns and `step` along the rows.
struct TileMatrix {
  float* data;
  std::int64_t stride, next = 0, step = 0, part = 0;

  [[nodiscard]] TileMatrix from(std::int64_t steps) const {
    return {data + steps * step, stride, next, step, part};
  }
};

}  // namespace heed::detail::HEED_ISA
