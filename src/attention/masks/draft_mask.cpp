#include "attention/masks/draft_mask.hpp"

#include <algorithm>
#include <utility>

#include "core/message.hpp"

namespace heed::detail {

DraftMask::DraftMask(const MaskShape& shape, std::vector<DraftTree> trees, std::vector<std::uint8_t> sees)
    : MaskPart(shape), trees_(std::move(trees)), sees_(std::move(sees)) {
  std::size_t at = 0;
  for (DraftTree& tree : trees_) {
    const auto rows = static_cast<std::size_t>(tree.row_end - tree.row_begin);
    if (at + rows * rows > sees_.size()) at = 0;  // all trees share one matrix
    tree.sees = sees_.data() + at;
    at += rows * rows;
  }
}

const DraftTree* DraftMask::tree_of(std::int64_t batch, std::int64_t row) const {
  for (const DraftTree& tree : trees_)
    if (tree.batch == batch && row >= tree.row_begin && row < tree.row_end) return &tree;
  return nullptr;
}

Coverage DraftMask::coverage(const MaskTile& tile) const {
  for (std::int64_t row = tile.row_begin; row < tile.row_end;) {
    const DraftTree* tree = tree_of(tile.batch, row);
    if (tree == nullptr) return Coverage::cut;
    if (tile.key_end > tree->key_end - (tree->row_end - tree->row_begin)) return Coverage::cut;
    row = tree->row_end;
  }
  return Coverage::full;
}

void DraftMask::restrict_row(const MaskTile& row, std::uint8_t* visible) const {
  const DraftTree* tree = tree_of(row.batch, row.row_begin);
  if (tree == nullptr) return;
  const std::int64_t rows = tree->row_end - tree->row_begin;
  const std::int64_t first = tree->key_end - rows;
  const std::uint8_t* sees = tree->sees + (row.row_begin - tree->row_begin) * rows;
  const std::int64_t end = std::min(row.key_end, tree->key_end);
  for (std::int64_t key = std::max(row.key_begin, first); key < end; ++key)
    if (sees[key - first] == 0) visible[key - row.key_begin] = 0;
}

std::size_t DraftMask::bytes() const { return sees_.size() + trees_.size() * sizeof(DraftTree); }

std::vector<std::uint8_t> ancestors_of(const std::vector<std::int64_t>& parents) {
  const std::size_t count = parents.size();
  std::vector<std::uint8_t> sees(count * count, 0);
  for (std::size_t node = 0; node < count; ++node) {
    const std::int64_t parent = parents[node];
    if (parent < -1 || parent >= static_cast<std::int64_t>(node))
      refuse("tree_parents[", node, "] is ", parent, "; -1 or a node before it is expected");
    if (parent >= 0)
      std::copy_n(sees.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(parent) * count), count,
                  sees.begin() + static_cast<std::ptrdiff_t>(node * count));
    sees[node * count + node] = 1;
  }
  return sees;
}

}  // namespace heed::detail
