// Bounds of an expression over a tile, by interval arithmetic.
//
// Each operator returns an interval that contains all results its operands' intervals allow, in the
// arithmetic that evaluates rows. Rounding to nearest is monotone, so ends that are rounded the same way
// bound everything between them. Sums and whole multiples of b, h, i and j are exact, and so is a comparison
// of two of them.
#pragma once

#include <array>

#include "attention/masks/expression_tree.hpp"

namespace heed::detail {

/// Ranges of b, h, i and j, from first to last, both included.
struct ExpressionBox {
  std::array<double, 4> first{}, last{};
};

/// Bounds the expression's values over the box, where indices must lie within their arrays.
[[nodiscard]] Interval interval_of(const Expression& expression, const ExpressionBox& box);

/// Throws Error (invalid_argument) if an index can leave its array over the box.
void check_indices(const Expression& expression, const ExpressionBox& box);

}  // namespace heed::detail
