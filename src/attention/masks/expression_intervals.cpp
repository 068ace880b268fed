#include "attention/masks/expression_intervals.hpp"

#include <algorithm>
#include <cmath>

#include "attention/masks/expression_words.hpp"

namespace heed::detail {
namespace {

using Nodes = std::array<Interval, kMaxExpressionNodes>;

constexpr double kMaxWhole = 0x1p52;

bool is_finite(const Interval& x) { return std::isfinite(x.lo) && std::isfinite(x.hi) && !x.nan; }
bool holds_zero(const Interval& x) { return x.lo <= 0 && x.hi >= 0; }
bool is_exact(const Interval& x) { return is_finite(x) && x.lo >= -kMaxWhole && x.hi <= kMaxWhole; }

Interval point(double value) { return std::isnan(value) ? kAnything : Interval{value, value, false}; }
Interval truth(bool surely, bool never) { return {surely ? 1.0 : 0.0, never ? 0.0 : 1.0, false}; }

Interval hull(const Interval& a, const Interval& b) {
  return {std::min(a.lo, b.lo), std::max(a.hi, b.hi), a.nan || b.nan};
}

// The hull of four numbers; none may be NaN.
Interval hull(double a, double b, double c, double d) {
  return {std::min({a, b, c, d}), std::max({a, b, c, d}), false};
}

Interval negated(const Interval& x) { return {-x.hi, -x.lo, x.nan}; }

Interval sum(const Interval& a, const Interval& b) {
  const bool cancels = (a.lo == -kInfinity && b.hi == kInfinity) || (a.hi == kInfinity && b.lo == -kInfinity);
  if (cancels) return kAnything;
  return {a.lo + b.lo, a.hi + b.hi, a.nan || b.nan};
}

Interval product(const Interval& a, const Interval& b) {
  if (!is_finite(a) || !is_finite(b)) return kAnything;
  return hull(a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi);
}

Interval quotient(const Interval& a, const Interval& b) {
  if (!is_finite(a) || !is_finite(b) || holds_zero(b)) return kAnything;
  return hull(a.lo / b.lo, a.lo / b.hi, a.hi / b.lo, a.hi / b.hi);
}

Interval floored(const Interval& x) { return {floor_of(x.lo), floor_of(x.hi), x.nan}; }

// Both must be whole.
Interval remainder(const Interval& a, const Interval& b) {
  if (!is_exact(a) || !is_exact(b) || holds_zero(b)) return kAnything;
  if (b.is_point()) {
    const double turns = floor_divide(a.lo, b.lo);
    if (turns == floor_divide(a.hi, b.lo)) return {a.lo - turns * b.lo, a.hi - turns * b.lo, false};
  }
  return b.lo > 0 ? Interval{0, b.hi - 1, false} : Interval{b.lo + 1, 0, false};
}

Interval magnitude(const Interval& x) {
  if (x.lo >= 0) return x;
  if (x.hi <= 0) return negated(x);
  return {0, std::max(-x.lo, x.hi), x.nan};
}

// If either operand may be NaN, so may the result.
Interval minimum(const Interval& a, const Interval& b) {
  return {std::min(a.lo, b.lo), std::min(a.hi, b.hi), a.nan || b.nan};
}
Interval maximum(const Interval& a, const Interval& b) {
  return {std::max(a.lo, b.lo), std::max(a.hi, b.hi), a.nan || b.nan};
}

// Bounds a rising function over [lo, hi] of x; it is computed to within a few units in the last place.
template <class Function>
Interval growing(Function function, double lo, double hi, bool nan) {
  constexpr int kUnits = 8;
  Interval range{function(lo), function(hi), nan};
  for (int n = 0; n < kUnits; ++n) {
    range.lo = std::nextafter(range.lo, -kInfinity);
    range.hi = std::nextafter(range.hi, kInfinity);
  }
  return range;
}

Interval square_root(const Interval& x) {
  if (x.hi < 0) return kAnything;
  return {std::sqrt(std::max(x.lo, 0.0)), std::sqrt(x.hi), x.nan || x.lo < 0};
}

Interval logarithm(const Interval& x) {
  if (x.hi < 0) return kAnything;
  return growing([](double at) { return std::log(at); }, std::max(x.lo, 0.0), x.hi, x.nan || x.lo < 0);
}

Interval value_at(const Affine& form, const ExpressionBox& box) {
  Interval range{form.constant, form.constant, false};
  for (std::size_t n = 0; n < form.factors.size(); ++n) {
    const double factor = form.factors[n];
    range.lo += factor * (factor < 0 ? box.last[n] : box.first[n]);
    range.hi += factor * (factor < 0 ? box.first[n] : box.last[n]);
  }
  return range;
}

Interval difference(const Affine& a, const Affine& b, const ExpressionBox& box) {
  Affine form{a.constant - b.constant, {}};
  for (std::size_t n = 0; n < form.factors.size(); ++n) form.factors[n] = a.factors[n] - b.factors[n];
  return value_at(form, box);
}

Interval equality(const Interval& a, const Interval& b) {
  return truth(a.is_point() && b.is_point() && a.lo == b.lo, a.hi < b.lo || b.hi < a.lo);
}
// A comparison with NaN is false.
Interval less(const Interval& a, const Interval& b) {
  return truth(a.hi < b.lo && !a.nan && !b.nan, a.lo >= b.hi);
}
Interval less_equal(const Interval& a, const Interval& b) {
  return truth(a.hi <= b.lo && !a.nan && !b.nan, a.lo > b.hi);
}
Interval inverted(const Interval& x) { return {1 - x.hi, 1 - x.lo, false}; }

Interval comparison(Op op, const Interval& a, const Interval& b) {
  if (op == Op::less) return less(a, b);
  if (op == Op::less_equal) return less_equal(a, b);
  return op == Op::equal ? equality(a, b) : inverted(equality(a, b));
}

bool compares(Op op) {
  return op == Op::less || op == Op::less_equal || op == Op::equal || op == Op::not_equal;
}

Interval of_numbers(const ExpressionNode& node, bool whole, const Interval& a, const Interval& b) {
  switch (node.op) {
    case Op::negate:
      return negated(a);
    case Op::add:
      return sum(a, b);
    case Op::subtract:
      return sum(a, negated(b));
    case Op::multiply:
      return product(a, b);
    case Op::divide:
      return quotient(a, b);
    case Op::floor_divide:
      return floored(quotient(a, b));
    case Op::modulo:
      return whole ? remainder(a, b) : kAnything;
    case Op::absolute:
      return magnitude(a);
    case Op::minimum:
      return minimum(a, b);
    case Op::maximum:
      return maximum(a, b);
    case Op::floor:
      return floored(a);
    case Op::square_root:
      return square_root(a);
    case Op::logarithm:
      return logarithm(a);
    case Op::exponential:
      return growing([](double x) { return std::exp(x); }, a.lo, a.hi, a.nan);
    case Op::hyperbolic_tangent:
      return growing([](double x) { return std::tanh(x); }, a.lo, a.hi, a.nan);
    default:
      return kAnything;
  }
}

Interval of_read(const ExpressionArray& array, const Interval& index) {
  const auto last = static_cast<double>(array.size() - 1);
  const auto begin = static_cast<std::int64_t>(std::clamp(index.lo, 0.0, last));
  const auto end = static_cast<std::int64_t>(std::clamp(index.hi, 0.0, last)) + 1;
  return array.range(begin, end);
}

// Bounds one node; the intervals of its operands are known.
Interval of_node(const Expression& expression, const ExpressionNode& node, const Nodes& known,
                 const ExpressionBox& box) {
  if (node.is_affine) return value_at(node.affine, box);
  const auto at = [&](int operand) -> const ExpressionNode& {
    return expression.nodes[static_cast<std::size_t>(operand)];
  };
  const auto operand = [&](int n) -> const Interval& {
    return n < 0 ? kAnything : known[static_cast<std::size_t>(n)];
  };
  const Interval &a = operand(node.a), &b = operand(node.b);
  switch (node.op) {
    case Op::number:
      return point(node.value);
    case Op::variable:
      return kAnything;  // the score s
    case Op::read:
      return of_read(expression.arrays[static_cast<std::size_t>(node.array)], a);
    case Op::invert:
      return inverted(a);
    case Op::both:
      return minimum(a, b);
    case Op::either:
      return maximum(a, b);
    case Op::select:
      return a.lo == 1 ? b : a.hi == 0 ? operand(node.c) : hull(b, operand(node.c));
    default:
      break;
  }
  if (!compares(node.op)) return of_numbers(node, node.whole, a, b);
  if (at(node.a).is_affine && at(node.b).is_affine)
    return comparison(node.op, difference(at(node.a).affine, at(node.b).affine, box), point(0));
  return comparison(node.op, a, b);
}

[[noreturn]] void fail_index(const Expression& expression, const ExpressionNode& node,
                             const Interval& index) {
  const ExpressionArray& array = expression.arrays[static_cast<std::size_t>(node.array)];
  const std::string read = shown(std::string_view(expression.text).substr(node.begin, node.end - node.begin));
  const std::string quote = quote_of(expression.kind, expression.text, node.begin);
  const std::string place = "column " + std::to_string(node.begin + 1);
  if (!is_finite(index))
    refuse(quote, "the bounds of the index of ", array.name(), "[...] at ", place, " are unknown");
  refuse(quote, "the index of ", read, " at ", place, " goes from ", index.lo, " to ", index.hi, ", but ",
         array.name(), " has ", counted(array.size(), "element"));
}

void check_index(const Expression& expression, const ExpressionNode& node, const Nodes& known) {
  const Interval& index = known[static_cast<std::size_t>(node.a)];
  const ExpressionArray& array = expression.arrays[static_cast<std::size_t>(node.array)];
  if (!is_finite(index) || index.lo < 0 || index.hi >= static_cast<double>(array.size()))
    fail_index(expression, node, index);
}

}  // namespace

Interval interval_of(const Expression& expression, const ExpressionBox& box) {
  Nodes known;
  std::size_t n = 0;
  for (const ExpressionNode& node : expression.nodes) known[n++] = of_node(expression, node, known, box);
  return known[n - 1];
}

void check_indices(const Expression& expression, const ExpressionBox& box) {
  Nodes known;
  std::size_t n = 0;
  for (const ExpressionNode& node : expression.nodes) {
    if (node.op == Op::read) check_index(expression, node, known);
    known[n++] = of_node(expression, node, known, box);
  }
}

}  // namespace heed::detail
