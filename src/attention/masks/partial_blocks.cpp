#include "attention/masks/partial_blocks.hpp"

#include <algorithm>
#include <utility>

namespace heed::detail {

PartialBlocks::PartialBlocks(const MaskShape& shape, std::int64_t query_block, std::int64_t key_block,
                             std::vector<std::size_t> first, std::vector<PartialBlock> blocks,
                             std::vector<std::uint64_t> bits)
    : MaskPart(shape),
      query_block_(query_block),
      key_block_(key_block),
      words_((key_block + 63) / 64),
      first_(std::move(first)),
      blocks_(std::move(blocks)),
      bits_(std::move(bits)) {}

PartialBlocks::Range PartialBlocks::blocks_from(const MaskTile& tile, std::int64_t block_row) const {
  const std::int64_t block_rows = (shape().query_length + query_block_ - 1) / query_block_;
  const auto row =
      static_cast<std::size_t>((tile.batch * shape().heads + tile.head) * block_rows + block_row);
  const PartialBlock* end = blocks_.data() + first_[row + 1];
  return {std::partition_point(
              blocks_.data() + first_[row], end,
              [&](const PartialBlock& b) { return (b.column + 1) * key_block_ <= tile.key_begin; }),
          end};
}

Coverage PartialBlocks::coverage(const MaskTile& tile) const {
  for (std::int64_t row = tile.row_begin / query_block_; row * query_block_ < tile.row_end; ++row) {
    const Range blocks = blocks_from(tile, row);
    if (blocks.begin != blocks.end && blocks.begin->column * key_block_ < tile.key_end) return Coverage::cut;
  }
  return Coverage::full;
}

void PartialBlocks::restrict_row(const MaskTile& row, std::uint8_t* visible) const {
  const Range blocks = blocks_from(row, row.row_begin / query_block_);
  for (const PartialBlock* at = blocks.begin; at != blocks.end && at->column * key_block_ < row.key_end;
       ++at) {
    const std::uint64_t* words = bits_.data() + at->bits + row.row_begin % query_block_ * words_;
    const std::int64_t begin = std::max(row.key_begin, at->column * key_block_);
    const std::int64_t end = std::min(row.key_end, (at->column + 1) * key_block_);
    for (std::int64_t j = begin; j < end; ++j) {
      const std::int64_t bit = j - at->column * key_block_;
      if ((words[bit / 64] >> (bit % 64) & 1) == 0) visible[j - row.key_begin] = 0;
    }
  }
}

std::size_t PartialBlocks::bytes() const {
  return first_.capacity() * sizeof(std::size_t) + blocks_.capacity() * sizeof(PartialBlock) +
         bits_.capacity() * sizeof(std::uint64_t) + sizeof *this;
}

}  // namespace heed::detail
