// What an expression can be over a tile, by interval arithmetic.
//
// Each operator gives an interval that holds whatever its operands' intervals allow, in the arithmetic that
// rows are evaluated in: rounding to nearest is monotone, so ends that are rounded the same way bound what
// lies between. Sums and whole multiples of b, h, i and j are exact, and so is the comparison of two of them.
#pragma once

#include <array>
#include <cstdint>

#include "attention/masks/expression_tree.hpp"

namespace heed::detail {

/// Of b, h, i, j: from first to last.
struct ExpressionBox {
  std::array<double, 4> first{}, last{};
};

/// Of all of its values over the box. Indices must lie within their arrays there.
[[nodiscard]] Interval interval_of(const Expression& expression, const ExpressionBox& box);

/// Throws Error (invalid_argument) where an index can leave its array over the box.
void check_indices(const Expression& expression, const ExpressionBox& box);

}  // namespace heed::detail
