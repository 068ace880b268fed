// A tree of drafts. Its keys are the last rows of the segment, and each query sees only its ancestors and
// itself there (speculative decoding: Miao et al. 2024).
#pragma once

#include <vector>

#include "attention/masks/mask_part.hpp"

namespace heed::detail {

/// A tree: its rows in one batch entry, and the end of its keys.
struct DraftTree {
  std::int64_t batch, row_begin, row_end;
  std::int64_t key_end;  ///< in the tensor; the tree's keys are the last row_end - row_begin before it
  const std::uint8_t* sees = nullptr;  ///< [row][row], in the mask's own memory
};

class DraftMask final : public MaskPart {
 public:
  /// `sees` has shape [trees or 1][q][q]; the trees are in order of batch and rows.
  DraftMask(const MaskShape& shape, std::vector<DraftTree> trees, std::vector<std::uint8_t> sees);

  [[nodiscard]] Coverage coverage(const MaskTile& tile) const override;
  void restrict_row(const MaskTile& row, std::uint8_t* visible) const override;
  [[nodiscard]] std::size_t bytes() const override;

 private:
  [[nodiscard]] const DraftTree* tree_of(std::int64_t batch, std::int64_t row) const;
  std::vector<DraftTree> trees_;
  std::vector<std::uint8_t> sees_;
};

/// Returns [q][q], where each node sees its ancestors and itself, from each node's parent (-1: a root).
/// Throws if a parent does not come before its node.
std::vector<std::uint8_t> ancestors_of(const std::vector<std::int64_t>& parents);

}  // namespace heed::detail
