// Compares the gradients of random calls with central differences of a forward pass that shares no code with
// src/.
//
// The loss is the same as in the backward pass: sum dO out + sum dLse lse + sum dWeights weights. For each
// tensor, a few elements and one direction over all of them are differentiated.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backward_call.hpp"
#include "describe_call.hpp"
#include "support.hpp"

namespace {

using heed::AttentionGradients;
using heed::AttentionOptions;
using heed::Dims;
using heed::DType;
using heed::Tensor;
using heed::TensorView;
using heed::test::BackwardCall;
using heed::test::Draw;
using heed::test::Naive;
using heed::test::naive_element;
using heed::test::Real;

constexpr std::uint64_t kSeed = 20240701;
constexpr std::uint64_t kCalls = 2000;

// The tensors of a call in f64. Every element with a gradient of its own has memory of its own.
struct Point {
  Tensor query, key, value, bias, sinks;
};

// A view without its repeated elements.
TensorView without_repeats(TensorView view) {
  for (int axis = 0; axis < view.rank(); ++axis)
    if (view.strides()[axis] == 0 && view.shape()[axis] > 1) view = view.narrow(axis, 0, 1);
  return view;
}

Point point_of(const BackwardCall& made) {
  const auto wide = [](const TensorView& view) { return Tensor::copy_of(view, DType::f64); };
  Point point{wide(made.call.query), wide(made.call.key), wide(made.call.value), {}, {}};
  if (made.call.options.bias) point.bias = wide(without_repeats(*made.call.options.bias));
  if (made.call.options.sinks) point.sinks = wide(without_repeats(*made.call.options.sinks));
  return point;
}

Real loss_at(const BackwardCall& made, const Point& point) {
  AttentionOptions options = made.call.options;
  options.map = {};
  if (options.bias) options.bias = point.bias;
  if (options.sinks) options.sinks = point.sinks;
  const Naive n = heed::test::naive_attention(point.query, point.key, point.value, options);
  const heed::AttentionBackwardInputs& in = made.inputs;
  Real loss = 0;
  for (std::int64_t b = 0; b < n.batch; ++b)
    for (std::int64_t h = 0; h < n.heads; ++h)
      for (std::int64_t i = 0; i < n.queries; ++i) {
        if (n.lse(b, h, i) == heed::test::kMinusInfinity) continue;
        if (in.grad_lse) loss += naive_element(*in.grad_lse, {0, b, h, i}) * n.lse(b, h, i);
        for (std::int64_t c = 0; c < n.value_dim; ++c)
          loss += naive_element(in.grad_output, {b, h, i, c}) * n.output(b, h, i, c);
        if (!in.grad_weights) continue;
        for (std::int64_t j = 0; j < n.keys; ++j)
          if (n.final_scores(b, h, i, j) != heed::test::kMinusInfinity)
            loss += naive_element(*in.grad_weights, {b, h, i, j}) * n.weights(b, h, i, j);
      }
  return loss;
}

// The derivative of f at 0, by a fourth-order difference.
template <class Function>
Real derivative(Function f) {
  const Real h = 0x1p-13;
  return (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h);
}

class Gradcheck {
 public:
  explicit Gradcheck(const BackwardCall& made)
      : made_(made), point_(point_of(made)), draw_(made.call.seed + 1, made.call.index) {}

  // Checks every gradient of the call. Returns "" or a text on the first that is wrong.
  std::string operator()(const AttentionGradients& gradients) {
    check("dQ", gradients.query, &Point::query);
    check("dK", gradients.key, &Point::key);
    check("dV", gradients.value, &Point::value);
    if (made_.request.bias) check("dBias", gradients.bias, &Point::bias);
    if (made_.request.sinks) check("dSinks", gradients.sinks, &Point::sinks);
    return failure_;
  }

 private:
  void check(const std::string& name, const Tensor& gradient, Tensor Point::*member) {
    const Tensor& at = point_.*member;
    if (gradient.shape() != at.shape()) failure_ = name + " has shape " + to_string(gradient.shape());
    if (!failure_.empty() || at.count() == 0) return;
    for (int n = 0; n < 3; ++n) {
      std::vector<double> direction(static_cast<std::size_t>(at.count()), 0);
      direction[static_cast<std::size_t>(draw_.between(0, at.count() - 1))] = 1;
      check_along(name, gradient, member, direction);
    }
    std::vector<double> direction;
    for (std::int64_t i = 0; i < at.count(); ++i) direction.push_back(draw_.normal());
    check_along(name, gradient, member, direction);
  }

  void check_along(const std::string& name, const Tensor& gradient, Tensor Point::*member,
                   const std::vector<double>& direction) {
    if (!failure_.empty()) return;
    const auto begin = (point_.*member).values<double>();
    const std::vector<double> middle(begin.begin(), begin.end());
    const Real expected = derivative([&](Real t) {
      for (std::size_t i = 0; i < middle.size(); ++i)
        begin[i] = middle[i] + static_cast<double>(t) * direction[i];
      return loss_at(made_, point_);
    });
    std::copy(middle.begin(), middle.end(), begin.begin());
    const Tensor wide = Tensor::copy_of(gradient, DType::f64);
    Real got = 0, size = 0;
    for (std::size_t i = 0; i < middle.size(); ++i) {
      got += direction[i] * wide.values<double>()[i];
      size += std::abs(direction[i] * wide.values<double>()[i]);
    }
    const Real allowed = 1e-7 * (1 + size);
    if (std::abs(got - expected) <= allowed) return;
    std::ostringstream text;
    text.precision(12);
    text << name << " is " << got << " along a direction where " << expected << " +- " << allowed
         << " is expected";
    failure_ = text.str();
  }

  const BackwardCall& made_;
  Point point_;
  Draw draw_;
  std::string failure_;
};

TEST(Gradcheck, GradientsAreTheDerivativesOfTheForwardPass) {
  heed::test::CallLimits limits;
  limits.lengths = {0, 1, 2, 3, 4, 5};
  limits.dims = {1, 2, 3};
  limits.kv_heads = {1, 1, 2};
  limits.groups = {1, 1, 2};
  limits.dtypes = {DType::f64};
  for (std::uint64_t index = 0; index < heed::test::share_of(kCalls); ++index) {
    const BackwardCall made = heed::test::backward_call(kSeed, index, limits);
    const Point point = point_of(made);
    AttentionOptions options = made.call.options;
    if (options.bias) options.bias = point.bias;  // so that its gradient is in f64
    if (options.sinks) options.sinks = point.sinks;
    const AttentionGradients gradients = heed::attention_backward(made.inputs, options, made.request);
    ASSERT_EQ(Gradcheck(made)(gradients), "") << describe(made.call);
  }
}

}  // namespace
