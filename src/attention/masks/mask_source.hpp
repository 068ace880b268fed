// A mask as kernels see it: two functions, and what they are called with. Plain data, so that a target
// compiled for one instruction set shares no inline function with code that must run anywhere.
#pragma once

#include <cstdint>

namespace heed::detail {

/// What a mask leaves of some rows and keys.
enum class Coverage : std::uint8_t { empty, cut, full };

/// Rows [row_begin, row_end) and keys [key_begin, key_end) of the tensors, of one batch entry and head of the
/// mask.
struct MaskTile {
  std::int64_t batch, head;
  std::int64_t row_begin, row_end, key_begin, key_end;
};

struct MaskSource {
  const void* part;
  /// `empty` and `full` are certain; `cut` says nothing.
  Coverage (*coverage)(const void* part, const MaskTile& tile);
  /// visible[k] becomes 0 where the tile's one row may not see key_begin + k; else it stays.
  void (*restrict_row)(const void* part, const MaskTile& row, std::uint8_t* visible);
  std::int64_t batch_step;  ///< 0 where all batch entries have the same mask, else 1
  std::int64_t heads_each;  ///< query heads that share a head of the mask
};

}  // namespace heed::detail
