// How operands and results of matrix tiles lie in memory.
#pragma once

#include <cstdint>

namespace heed::detail::HEED_ISA {

/// Tiles of 16 rows of 16 floats, rows `stride` floats apart. `next`: from a tile to the one beside it. Of an
/// operand, `step`: to the next along what is summed over, and `part`: to that of its next part. Of a result,
/// `next` goes along its columns and `step` along its rows.
struct TileMatrix {
  float* data;
  std::int64_t stride, next = 0, step = 0, part = 0;

  [[nodiscard]] TileMatrix from(std::int64_t steps) const {
    return {data + steps * step, stride, next, step, part};
  }
};

}  // namespace heed::detail::HEED_ISA
