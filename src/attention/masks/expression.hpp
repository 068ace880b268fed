// A mask given as a condition on b, h, i and j.
#pragma once

#include "attention/masks/expression_rows.hpp"
#include "attention/masks/mask_part.hpp"

namespace heed::detail {

class ExpressionMask final : public MaskPart {
 public:
  /// Throws Error (invalid_argument) if an index can leave its array. Also throws if the expression does not
  /// tell its number of batch entries or heads; an array indexed by b or h alone does.
  ExpressionMask(Expression expression, std::int64_t query_length, std::int64_t key_length);

  [[nodiscard]] Coverage coverage(const MaskTile& tile) const override;
  void restrict_row(const MaskTile& row, std::uint8_t* visible) const override;
  [[nodiscard]] std::size_t bytes() const override { return program_.bytes(); }
  [[nodiscard]] SavedPart saved() const override;

 private:
  RowProgram program_;
};

}  // namespace heed::detail
