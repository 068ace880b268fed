#include "attention/masks/column_intervals.hpp"

#include <algorithm>
#include <utility>

namespace heed::detail {
namespace {

constexpr std::int64_t kBlockKeys = 64;

}  // namespace

ColumnIntervals::ColumnIntervals(const MaskShape& shape, std::int64_t key_length, std::int64_t count,
                                 std::vector<std::int32_t> rows)
    : MaskPart(shape),
      key_length_(key_length),
      blocks_((key_length + kBlockKeys - 1) / kBlockKeys),
      count_(count),
      rows_(std::move(rows)) {
  for (std::int64_t list = 0; blocks_ > 0 && list < shape.planes() * count_; ++list)
    for (std::int64_t block = 0; block < blocks_; ++block) {
      const std::int32_t* begins = rows_.data() + list * 2 * key_length_ + block * kBlockKeys;
      block_.push_back(
          block_of(begins, begins + key_length_, std::min(kBlockKeys, key_length_ - block * kBlockKeys)));
    }
}

ColumnIntervals::Block ColumnIntervals::block_of(const std::int32_t* begins, const std::int32_t* ends,
                                                 std::int64_t count) const {
  Block block{0, INT32_MAX, INT32_MAX, 0};
  for (std::int64_t k = 0; k < count; ++k) {
    block.most_begin = std::max(block.most_begin, begins[k]);
    block.least_end = std::min(block.least_end, ends[k]);
    if (begins[k] >= ends[k]) continue;
    block.least_begin = std::min(block.least_begin, begins[k]);
    block.most_end = std::max(block.most_end, ends[k]);
  }
  return block;
}

// Blocks that are only partly in the tile are treated as whole.
Coverage ColumnIntervals::coverage(const MaskTile& tile) const {
  const std::int64_t plane = tile.batch * shape().heads + tile.head;
  bool any = false, all = true;
  for (std::int64_t b = tile.key_begin / kBlockKeys; b * kBlockKeys < tile.key_end; ++b) {
    bool forbidden = false, free = true;
    for (std::int64_t n = 0; n < count_; ++n) {
      const Block& block = block_[static_cast<std::size_t>((plane * count_ + n) * blocks_ + b)];
      forbidden = forbidden || (block.most_begin <= tile.row_begin && block.least_end >= tile.row_end);
      free = free && (block.least_begin >= tile.row_end || block.most_end <= tile.row_begin);
    }
    any = any || !forbidden;
    all = all && free;
    if (any && !all) return Coverage::cut;
  }
  return all ? Coverage::full : Coverage::empty;
}

void ColumnIntervals::restrict_row(const MaskTile& row, std::uint8_t* visible) const {
  const std::int64_t plane = row.batch * shape().heads + row.head;
  const auto i = static_cast<std::int32_t>(row.row_begin);
  const std::int64_t count = row.key_end - row.key_begin;
  for (std::int64_t n = 0; n < count_; ++n) {
    const std::int32_t* begins = rows_.data() + (plane * count_ + n) * 2 * key_length_ + row.key_begin;
    const std::int32_t* ends = begins + key_length_;
    for (std::int64_t k = 0; k < count; ++k)
      visible[k] = static_cast<std::uint8_t>(visible[k] & ((i < begins[k]) | (i >= ends[k])));
  }
}

std::size_t ColumnIntervals::bytes() const {
  return rows_.capacity() * sizeof(std::int32_t) + block_.capacity() * sizeof(Block) + sizeof *this;
}

}  // namespace heed::detail
