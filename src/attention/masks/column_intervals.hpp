// A mask that lists, for each key, the rows that may not see it, as one or two intervals (FlashMask: Wang et
// al. 2024).
#pragma once

#include <cstdint>
#include <vector>

#include "attention/masks/mask_part.hpp"

namespace heed::detail {

class ColumnIntervals final : public MaskPart {
 public:
  /// `rows` [planes][count][2][Lk] holds `count` intervals (1 or 2) per plane and key: the begins of all
  /// keys, then their ends. An empty interval begins at its end.
  ColumnIntervals(const MaskShape& shape, std::int64_t key_length, std::int64_t count,
                  std::vector<std::int32_t> rows);

  [[nodiscard]] Coverage coverage(const MaskTile& tile) const override;
  void restrict_row(const MaskTile& row, std::uint8_t* visible) const override;
  [[nodiscard]] std::size_t bytes() const override;
  [[nodiscard]] SavedPart saved() const override;

 private:
  // Bounds of one interval over a block of keys. All keys forbid rows [most_begin, least_end); rows that some
  // key forbids lie in [least_begin, most_end).
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
