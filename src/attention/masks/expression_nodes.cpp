#include "attention/masks/expression_nodes.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace heed::detail {
namespace {

bool is_whole_number(double value) { return std::isfinite(value) && std::floor(value) == value; }

// With every size at most 2^32, values stay below 2^51 + 2^18 * 2^32 < 2^52.
bool is_small(const Affine& affine) {
  double factors = 0;
  for (const double factor : affine.factors) factors += std::fabs(factor);
  return std::fabs(affine.constant) <= 0x1p51 && factors <= 0x1p18;
}

bool is_constant(const Affine& affine) {
  return std::ranges::all_of(affine.factors, [](double factor) { return factor == 0; });
}

// a * x + b * y
Affine sum_of(double a, const Affine& x, double b, const Affine& y) {
  Affine sum{a * x.constant + b * y.constant, {}};
  for (std::size_t n = 0; n < sum.factors.size(); ++n) sum.factors[n] = a * x.factors[n] + b * y.factors[n];
  return sum;
}

ValueType type_of(Op op, ValueType of_select) {
  switch (op) {
    case Op::invert:
    case Op::less:
    case Op::less_equal:
    case Op::equal:
    case Op::not_equal:
    case Op::both:
    case Op::either:
      return ValueType::condition;
    case Op::select:
      return of_select;
    default:
      return ValueType::number;
  }
}

}  // namespace

double value_of(Op op, double a, double b, double c) {
  double value = a != 0 ? b : c;  // Op::select
  with_function(op, [&]<class F>(F f) {
    if constexpr (std::is_invocable_v<F, double>)
      value = f(a);
    else
      value = f(a, b);
  });
  return value;
}

int ExpressionNodes::number(double value, ValueType type, std::size_t begin, std::size_t end) {
  ExpressionNode node{.type = type, .value = value, .begin = begin, .end = end, .affine = {}};
  return append(node);
}

int ExpressionNodes::variable(Variable variable, std::size_t begin, std::size_t end) {
  ExpressionNode node{.op = Op::variable, .variable = variable, .begin = begin, .end = end, .affine = {}};
  node.needs = bit_of(variable);
  return append(node);
}

int ExpressionNodes::read(int array, int index, std::size_t begin, std::size_t end) {
  const bool boolean = expression_.arrays[static_cast<std::size_t>(array)].is_boolean();
  ExpressionNode node{.op = Op::read,
                      .type = boolean ? ValueType::condition : ValueType::number,
                      .a = index,
                      .array = array,
                      .begin = begin,
                      .end = end,
                      .affine = {}};
  node.needs = (*this)[index].needs;
  return append(node);
}

int ExpressionNodes::operation(Op op, std::size_t begin, std::size_t end, int a, int b, int c) {
  ExpressionNode node{.op = op, .a = a, .b = b, .c = c, .begin = begin, .end = end, .affine = {}};
  node.type = type_of(op, b < 0 ? ValueType::number : (*this)[b].type);
  double values[3] = {0, 0, 0};
  bool constant = true;
  int operands = 0;
  for (const int operand : {a, b, c}) {
    if (operand < 0) continue;
    const ExpressionNode& of = (*this)[operand];
    node.needs = static_cast<std::uint8_t>(node.needs | of.needs);
    constant = constant && of.op == Op::number;
    values[operands++] = of.value;
  }
  if (!constant) return append(node);
  // Constant operands are the last nodes.
  expression_.nodes.resize(expression_.nodes.size() - static_cast<std::size_t>(operands));
  return number(value_of(op, values[0], values[1], values[2]), node.type, begin, end);
}

int ExpressionNodes::append(ExpressionNode node) {
  ++made_;
  node.whole = node.type == ValueType::number && is_whole(node);
  node.is_affine = node.whole && find_affine(node) && is_small(node.affine);
  expression_.nodes.push_back(node);
  return static_cast<int>(expression_.nodes.size()) - 1;
}

bool ExpressionNodes::is_whole(const ExpressionNode& node) const {
  const auto whole = [&](int operand) { return (*this)[operand].whole; };
  switch (node.op) {
    case Op::number:
      return is_whole_number(node.value);
    case Op::variable:
      return node.variable != Variable::s;
    case Op::read:
      return expression_.arrays[static_cast<std::size_t>(node.array)].is_whole();
    case Op::floor:
    case Op::floor_divide:
      return true;
    case Op::negate:
    case Op::absolute:
      return whole(node.a);
    case Op::add:
    case Op::subtract:
    case Op::multiply:
    case Op::modulo:
    case Op::minimum:
    case Op::maximum:
      return whole(node.a) && whole(node.b);
    case Op::select:
      return whole(node.b) && whole(node.c);
    default:
      return false;
  }
}

// Sets node.affine and returns true if the node is affine.
bool ExpressionNodes::find_affine(ExpressionNode& node) const {
  if (node.op == Op::number) {
    node.affine.constant = node.value;
    return true;
  }
  if (node.op == Op::variable) {
    node.affine.factors[static_cast<std::size_t>(node.variable)] = 1;
    return true;
  }
  if (node.a < 0 || !(*this)[node.a].is_affine) return false;
  const Affine& a = (*this)[node.a].affine;
  if (node.op == Op::negate) {
    node.affine = sum_of(-1, a, 0, a);
    return true;
  }
  if (node.b < 0 || !(*this)[node.b].is_affine) return false;
  const Affine& b = (*this)[node.b].affine;
  if (node.op == Op::add)
    node.affine = sum_of(1, a, 1, b);
  else if (node.op == Op::subtract)
    node.affine = sum_of(1, a, -1, b);
  else if (node.op == Op::multiply && is_constant(b))
    node.affine = sum_of(b.constant, a, 0, a);
  else if (node.op == Op::multiply && is_constant(a))
    node.affine = sum_of(a.constant, b, 0, b);
  else
    return false;
  return true;
}

}  // namespace heed::detail
