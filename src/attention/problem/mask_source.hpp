// Masks and ScoreMods, as kernels see them: functions and their arguments. Plain data: a target compiled for
// one instruction set must share no inline function with code that runs anywhere.
#pragma once

#include <cstdint>

namespace heed::detail {

/// How much of a tile a mask allows: nothing, some of it, or all.
enum class Coverage : std::uint8_t { empty, cut, full };

/// Rows [row_begin, row_end) and keys [key_begin, key_end) of the tensors, in one batch entry and head of the
/// mask.
struct MaskTile {
  std::int64_t batch, head;
  std::int64_t row_begin, row_end, key_begin, key_end;
};

/// The place of a call within the whole call that it is a part of. Row i stands at rows[i], which ascend, or
/// at row_begin + i. Batch entries and query heads count from batch_begin and head_begin on.
struct PartPlace {
  const std::int64_t* rows = nullptr;
  std::int64_t row_begin = 0, batch_begin = 0, head_begin = 0;
  [[nodiscard, gnu::always_inline]] std::int64_t row(std::int64_t i) const {
    return rows != nullptr ? rows[i] : row_begin + i;
  }
};

struct MaskSource {
  const void* part;
  /// `empty` and `full` are certain; `cut` promises nothing.
  Coverage (*coverage_of)(const void* part, const MaskTile& tile);
  /// Sets visible[k] to 0 if the tile's one row may not see key_begin + k; other elements stay.
  void (*restrict_one)(const void* part, const MaskTile& row, std::uint8_t* visible);
  std::int64_t batch_step;  ///< 0 if all batch entries share a mask, else 1
  std::int64_t heads_each;  ///< query heads per head of the mask
  PartPlace place{};

  /// Takes a batch entry, a query head and at least one row of the call.
  [[nodiscard, gnu::always_inline]] Coverage coverage(const MaskTile& tile) const {
    return coverage_of(
        part, {(tile.batch + place.batch_begin) * batch_step, (tile.head + place.head_begin) / heads_each,
               place.row(tile.row_begin), place.row(tile.row_end - 1) + 1, tile.key_begin, tile.key_end});
  }
  [[gnu::always_inline]] void restrict_row(std::int64_t batch, std::int64_t head, std::int64_t row,
                                           std::int64_t key_begin, std::int64_t key_end,
                                           std::uint8_t* visible) const {
    const std::int64_t at = place.row(row);
    restrict_one(part,
                 {(batch + place.batch_begin) * batch_step, (head + place.head_begin) / heads_each, at,
                  at + 1, key_begin, key_end},
                 visible);
  }
};

/// scores[k], of key key_begin + k, becomes f(scores[k]), in natural units. slopes[k] becomes f'(scores[k]),
/// unless `slopes` is null.
struct ScoreModSource {
  const void* part = nullptr;  ///< nullptr: scores stay
  /// Takes a tile of one row.
  void (*apply_f32)(const void* part, const MaskTile& row, float* scores, float* slopes) = nullptr;
  PartPlace place{};

  explicit operator bool() const { return part != nullptr; }
  [[gnu::always_inline]] void apply(std::int64_t batch, std::int64_t head, std::int64_t row,
                                    std::int64_t key_begin, std::int64_t key_end, float* scores,
                                    float* slopes) const {
    const std::int64_t at = place.row(row);
    apply_f32(part, {batch + place.batch_begin, head + place.head_begin, at, at + 1, key_begin, key_end},
              scores, slopes);
  }
};

}  // namespace heed::detail
