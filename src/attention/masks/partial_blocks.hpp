// Blocks in which only some pairs are allowed, bit by bit. All pairs outside of these blocks are allowed.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/masks/mask_part.hpp"

namespace heed::detail {

/// A partial block. In a row of blocks, they are in ascending order of `column`.
struct PartialBlock {
  std::int64_t column;
  std::int64_t bits;  ///< index of its first word
};

class PartialBlocks final : public MaskPart {
 public:
  /// `first` [planes * block rows + 1] indexes into `blocks`. A block's bits are [query_block][ceil(key_block
  /// / 64)] words.
  PartialBlocks(const MaskShape& shape, std::int64_t query_block, std::int64_t key_block,
                std::vector<std::size_t> first, std::vector<PartialBlock> blocks,
                std::vector<std::uint64_t> bits);

  [[nodiscard]] Coverage coverage(const MaskTile& tile) const override;
  void restrict_row(const MaskTile& row, std::uint8_t* visible) const override;
  [[nodiscard]] std::size_t bytes() const override;
  [[nodiscard]] SavedPart saved() const override;

 private:
  // The blocks of a row of blocks, from the first that ends after the tile's first key to the last of the
  // row.
  struct Range {
    const PartialBlock *begin, *end;
  };
  [[nodiscard]] Range blocks_from(const MaskTile& tile, std::int64_t block_row) const;

  std::int64_t query_block_, key_block_, words_;
  std::vector<std::size_t> first_;
  std::vector<PartialBlock> blocks_;
  std::vector<std::uint64_t> bits_;
};

}  // namespace heed::detail
