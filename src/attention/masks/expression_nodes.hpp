// Builds the nodes of an expression: their types, their dependences, and constant folding. Also what an
// operator computes.
#pragma once

#include <cmath>
#include <cstddef>

#include "attention/masks/expression_tree.hpp"

namespace heed::detail {

/// Calls visit(f) with the operator's function of one or two numbers; conditions are 1 and 0. Not for
/// Op::number, variable, read and select.
template <class Visitor>
void with_function(Op op, Visitor visit) {
  switch (op) {
    case Op::negate:
      return visit([](double x) { return -x; });
    case Op::invert:
      return visit([](double x) { return 1 - x; });
    case Op::add:
      return visit([](double x, double y) { return x + y; });
    case Op::subtract:
      return visit([](double x, double y) { return x - y; });
    case Op::multiply:
    case Op::both:
      return visit([](double x, double y) { return x * y; });
    case Op::divide:
      return visit([](double x, double y) { return x / y; });
    case Op::floor_divide:
      return visit([](double x, double y) { return floor_divide(x, y); });
    case Op::modulo:
      return visit([](double x, double y) { return modulo_of(x, y); });
    case Op::less:
      return visit([](double x, double y) { return x < y ? 1.0 : 0.0; });
    case Op::less_equal:
      return visit([](double x, double y) { return x <= y ? 1.0 : 0.0; });
    case Op::equal:
      return visit([](double x, double y) { return x == y ? 1.0 : 0.0; });
    case Op::not_equal:
      return visit([](double x, double y) { return x != y ? 1.0 : 0.0; });
    case Op::either:
      return visit([](double x, double y) { return x < y ? y : x; });
    case Op::minimum:
      return visit([](double x, double y) { return minimum_of(x, y); });
    case Op::maximum:
      return visit([](double x, double y) { return maximum_of(x, y); });
    case Op::absolute:
      return visit([](double x) { return std::fabs(x); });
    case Op::floor:
      return visit([](double x) { return floor_of(x); });
    case Op::square_root:
      return visit([](double x) { return std::sqrt(x); });
    case Op::exponential:
      return visit([](double x) { return std::exp(x); });
    case Op::logarithm:
      return visit([](double x) { return std::log(x); });
    case Op::hyperbolic_tangent:
      return visit([](double x) { return std::tanh(x); });
    case Op::number:
    case Op::variable:
    case Op::read:
    case Op::select:
      return;
  }
}

/// Applies an operator to numbers. Not for Op::number, variable and read.
[[nodiscard]] double value_of(Op op, double a, double b, double c);

class ExpressionNodes {
 public:
  explicit ExpressionNodes(Expression& expression) : expression_(expression) {}

  /// These return the new node's index. The operands' types must already be right.
  int number(double value, ValueType type, std::size_t begin, std::size_t end);
  int variable(Variable variable, std::size_t begin, std::size_t end);
  int read(int array, int index, std::size_t begin, std::size_t end);
  int operation(Op op, std::size_t begin, std::size_t end, int a, int b = -1, int c = -1);

  [[nodiscard]] const ExpressionNode& operator[](int node) const {
    return expression_.nodes[static_cast<std::size_t>(node)];
  }
  /// Number of nodes made, including those that were folded into constants.
  [[nodiscard]] std::size_t made() const { return made_; }

 private:
  int append(ExpressionNode node);
  [[nodiscard]] bool is_whole(const ExpressionNode& node) const;
  [[nodiscard]] bool find_affine(ExpressionNode& node) const;

  Expression& expression_;
  std::size_t made_ = 0;
};

}  // namespace heed::detail
