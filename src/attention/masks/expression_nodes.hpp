// Builds the nodes of an expression: their types, their dependences, and constant folding.
#pragma once

#include <cstddef>

#include "attention/masks/expression_tree.hpp"

namespace heed::detail {

/// Applies an operator to numbers; conditions are 1 and 0. Not for Op::number, variable and read.
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
