// For each key the rows that may not see it, as one or two intervals (FlashMask: Wang et al. 2024).
#pragma once

#include <cstdint>
#include <vector>

#include "attention/masks/mask_part.hpp"

namespace heed::detail {

class ColumnIntervals final : public MaskPart {
 public:
  /// `rows`: of each plane `count` intervals (1 or 2), each with the begins of all keys and then their ends:
  /// [planes][count][2][Lk]. Empty intervals begin at their end.
  ColumnIntervals(const MaskShape& shape, std::int64_t key_length, std::int64_t count,
                  std::vector<std::int32_t> rows);

  [[nodiscard]] Coverage coverage(const MaskTile& tile) const override;
  void restrict_row(const MaskTile& row, std::uint8_t* visible) const override;
  [[nodiscard]] std::size_t bytes() const override;
  [[nodiscard]] SavedPart saved() const override;

 private:
  // Of one interval of each of a block of keys: rows that all forbid are [most_begin, least_end), rows that
  // some forbid lie in [least_begin, most_end).
  struct Block {
    std::int32_t most_begin, least_end, least_begin, most_end;
  };
  [[nodiscard]] Block block_of(const std::int32_t* begins, const std::int32_t* ends,
                               std::int64_t count) const;

  std::int64_t key_length_, blocks_, count_;
  std::vector<std::int32_t> rows_;
  std::vector<Block> block_;  // [planes][count][blocks]
};

}  // namespace heed::detail
