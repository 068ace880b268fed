// An expression over b, h, i and j, and in scores s, as it was read and checked.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attention/masks/expression_array.hpp"
#include "heed/tensor.hpp"

namespace heed::detail {

inline constexpr std::size_t kLongestExpression = 4096;  // bytes
inline constexpr int kDeepestExpression = 64;
inline constexpr std::size_t kMostExpressionNodes = 256;
/// Batch sizes, head counts and lengths are this at most. Whole numbers stay exact then: see Affine.
inline constexpr std::int64_t kLargestExpressionSize = std::int64_t{1} << 32;

enum class ExpressionKind : std::uint8_t { mask, score };
enum class ValueType : std::uint8_t { number, condition };

enum class Op : std::uint8_t {
  // clang-format off
  number, variable, read,
  negate, invert,
  add, subtract, multiply, divide, floor_divide, modulo,
  less, less_equal, equal, not_equal,
  both, either, select,
  absolute, minimum, maximum, floor, square_root, exponential, logarithm, hyperbolic_tangent,
  // clang-format on
};

/// Variables in the order of their bits in ExpressionNode::needs.
enum class Variable : std::uint8_t { b, h, i, j, s };
inline constexpr std::uint8_t bit_of(Variable variable) {
  return static_cast<std::uint8_t>(1u << static_cast<unsigned>(variable));
}

/// constant + the factors times b, h, i, j. All are whole, and so small that every value is below 2^52 in
/// size: it and the difference of two are exact in double.
struct Affine {
  double constant = 0;
  std::array<double, 4> factors{};
};

/// Conditions are numbers too: 1 is true and 0 is false.
struct ExpressionNode {
  Op op = Op::number;
  ValueType type = ValueType::number;
  Variable variable = Variable::b;
  std::uint8_t needs = 0;          ///< bits of the variables that it depends on
  bool whole = false;              ///< a whole number, or infinite or NaN
  bool is_affine = false;          ///< `affine` holds
  int a = -1, b = -1, c = -1;      ///< operands; the index of a read is a
  int array = -1;                  ///< of a read
  double value = 0;                ///< of a number
  std::size_t begin = 0, end = 0;  ///< where it stands in the text
  Affine affine;
};

struct Expression {
  ExpressionKind kind = ExpressionKind::mask;
  std::string text;
  /// Each after its operands; the last is the whole. The operands of a node are the roots of the subtrees
  /// right before it, the first operand's first (of a > b and a >= b, which are stored as b < a and b <= a,
  /// the other way round).
  std::vector<ExpressionNode> nodes;
  std::vector<ExpressionArray> arrays;  ///< those that it reads

  [[nodiscard]] const ExpressionNode& root() const { return nodes.back(); }
  [[nodiscard]] std::size_t bytes() const;
};

/// Copies the arrays by name; parse_expression() takes them back.
[[nodiscard]] std::vector<std::pair<std::string, Tensor>> arrays_of(const Expression& expression);

using NamedArrays = std::span<const std::pair<std::string, TensorView>>;

/// Throws Error (invalid_argument) that quotes the place of a mistake. Whether indices stay inside of their
/// arrays depends on lengths: check_indices() says so.
[[nodiscard]] Expression parse_expression(ExpressionKind kind, std::string_view text, NamedArrays arrays);

/// "mask expression" or "score expression".
[[nodiscard]] std::string_view name_of(ExpressionKind kind);
/// `mask expression "j <= i": `, of a long text what stands around the place.
[[nodiscard]] std::string quote_of(ExpressionKind kind, std::string_view text, std::size_t place);

}  // namespace heed::detail
