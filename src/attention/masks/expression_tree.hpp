// A parsed and checked expression over b, h, i and j; score expressions also have s.
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
inline constexpr std::size_t kMaxExpressionNodes = 256;
/// Upper limit of batch size, head count and lengths. It keeps whole numbers exact: see Affine.
inline constexpr std::int64_t kMaxExpressionSize = std::int64_t{1} << 32;

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

/// The variables, in the order of their bits in ExpressionNode::needs.
enum class Variable : std::uint8_t { b, h, i, j, s };
inline constexpr std::uint8_t bit_of(Variable variable) {
  return static_cast<std::uint8_t>(1u << static_cast<unsigned>(variable));
}

/// constant + the factors times b, h, i, j. All are whole, and small enough that |value| < 2^52. So a value
/// and the difference of two values are exact in double.
struct Affine {
  double constant = 0;
  std::array<double, 4> factors{};
};

/// A node. Conditions are numbers too: 1 is true and 0 is false.
struct ExpressionNode {
  Op op = Op::number;
  ValueType type = ValueType::number;
  Variable variable = Variable::b;
  std::uint8_t needs = 0;          ///< bits of the variables it depends on
  bool whole = false;              ///< always a whole number, infinite or NaN
  bool is_affine = false;          ///< whether `affine` is set
  int a = -1, b = -1, c = -1;      ///< operands; a is the index of a read
  int array = -1;                  ///< set for reads
  double value = 0;                ///< set for numbers
  std::size_t begin = 0, end = 0;  ///< its place in the text
  Affine affine;
};

struct Expression {
  ExpressionKind kind = ExpressionKind::mask;
  std::string text;
  /// Each node follows its operands; the last node is the root. A node's operands are the roots of the
  /// subtrees right before it, in order. The order is reversed for a > b and a >= b, which are stored as b <
  /// a and b <= a.
  std::vector<ExpressionNode> nodes;
  std::vector<ExpressionArray> arrays;  ///< the arrays that it reads

  [[nodiscard]] const ExpressionNode& root() const { return nodes.back(); }
  [[nodiscard]] std::size_t bytes() const;
};

/// Copies the arrays, with their names, in the form that parse_expression() takes.
[[nodiscard]] std::vector<std::pair<std::string, Tensor>> arrays_of(const Expression& expression);

using NamedArrays = std::span<const std::pair<std::string, TensorView>>;

/// Throws Error (invalid_argument) that quotes the place of a mistake. Whether indices stay inside their
/// arrays depends on the lengths; check_indices() tells.
[[nodiscard]] Expression parse_expression(ExpressionKind kind, std::string_view text, NamedArrays arrays);

/// Returns "mask expression" or "score expression".
[[nodiscard]] std::string_view name_of(ExpressionKind kind);
/// Returns `mask expression "j <= i": `; a long text is cut to the surroundings of `place`.
[[nodiscard]] std::string quote_of(ExpressionKind kind, std::string_view text, std::size_t place);

}  // namespace heed::detail
