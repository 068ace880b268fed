// Derivatives of expressions with respect to the score, in forward mode: values and slopes side by side.
#include <algorithm>

#include "attention/masks/expression_rows.hpp"

namespace heed::detail {
namespace {

constexpr double kZero = 0, kOne = 1;

// One number per key; a uniform value is copied to scratch memory.
class Spread {
 public:
  Spread(ChunkValues values, std::size_t count) : at_(values.at) {
    if (!values.uniform) return;
    std::fill_n(memory_, count, *values.at);
    at_ = memory_;
  }
  Spread(const Spread&) = delete;
  Spread& operator=(const Spread&) = delete;
  [[nodiscard]] const double* at() const { return at_; }

 private:
  const double* at_;
  double memory_[256];
};

// A node's inputs at each key: operands a, b, c with slopes da, db, dc; and its own value.
struct Terms {
  const double *a, *b, *c, *da, *db, *dc, *value;
};

// Computes the slope at each key, by the operator's rule.
template <class Rule>
void each(Rule rule, const Terms& t, double* __restrict result, std::size_t count) {
  for (std::size_t k = 0; k < count; ++k) result[k] = rule(t.a[k], t.b[k], t.da[k], t.db[k], t.value[k]);
}

void slopes_of(Op op, const Terms& t, double* result, std::size_t count) {
  const auto by = [&](auto rule) { each(rule, t, result, count); };
  switch (op) {
    case Op::negate:
      return by([](double, double, double da, double, double) { return -da; });
    case Op::add:
      return by([](double, double, double da, double db, double) { return da + db; });
    case Op::subtract:
      return by([](double, double, double da, double db, double) { return da - db; });
    case Op::multiply:
      return by([](double a, double b, double da, double db, double) { return da * b + a * db; });
    case Op::divide:
      return by([](double, double b, double da, double db, double value) { return (da - value * db) / b; });
    case Op::modulo:
      return by(
          [](double a, double b, double da, double db, double) { return da - floor_divide(a, b) * db; });
    case Op::select:
      for (std::size_t k = 0; k < count; ++k) result[k] = t.a[k] != 0 ? t.db[k] : t.dc[k];
      return;
    case Op::minimum:
      return by([](double a, double b, double da, double db, double) { return b < a || b != b ? db : da; });
    case Op::maximum:
      return by([](double a, double b, double da, double db, double) { return b > a || b != b ? db : da; });
    case Op::absolute:
      return by([](double a, double, double da, double, double) { return a > 0 ? da : a < 0 ? -da : 0.0; });
    case Op::square_root:
      return by([](double, double, double da, double, double value) { return da / (2 * value); });
    case Op::exponential:
      return by([](double, double, double da, double, double value) { return da * value; });
    case Op::logarithm:
      return by([](double a, double, double da, double, double) { return da / a; });
    case Op::hyperbolic_tangent:
      return by([](double, double, double da, double, double value) { return (1 - value * value) * da; });
    default:  // floor and // are step functions
      std::fill_n(result, count, 0.0);
      return;
  }
}

}  // namespace

void RowSlopes::differentiate(const Step& step, std::size_t count) {
  const ExpressionNode& node = program_.node(step.node);
  if (node.type != ValueType::number || (node.needs & bit_of(Variable::s)) == 0) return;
  const int b = node.b < 0 ? node.a : node.b, c = node.c < 0 ? node.a : node.c;
  const Spread at_a(operand(node.a), count), at_b(operand(b), count), at_c(operand(c), count);
  const Spread of_a(slope(node.a), count), of_b(slope(b), count), of_c(slope(c), count);
  double* result = slope_registers_.data() + static_cast<std::int64_t>(step.result) * program_.chunk();
  const Terms terms{at_a.at(), at_b.at(), at_c.at(), of_a.at(), of_b.at(), of_c.at(), operand(step.node).at};
  slopes_of(node.op, terms, result, count);
  slopes_[static_cast<std::size_t>(step.node)] = {result, false};
}

RowSlopes::Result RowSlopes::values_and_slopes(std::int64_t begin, std::int64_t count, const double* scores) {
  const std::size_t nodes = program_.expression().nodes.size();
  std::fill_n(slopes_.begin(), nodes, ChunkValues{&kZero, true});
  for (const int n : program_.scores_) slopes_[static_cast<std::size_t>(n)] = {&kOne, true};
  const ChunkValues result = values_with(
      begin, count, scores, [&](const Step& step) { differentiate(step, static_cast<std::size_t>(count)); });
  return {result, slopes_[nodes - 1]};
}

}  // namespace heed::detail
