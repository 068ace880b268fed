// Random calls of the backward pass: a random forward call, its results, and gradients of those results.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <list>
#include <vector>

#include "checked_call.hpp"
#include "heed/attention/backward.hpp"
#include "naive_backward.hpp"

namespace heed::test {

/// Naive gradients with magnitudes for these errors of the rows.
struct ExpectedGradients {
  std::vector<Real> row_errors;
  NaiveGradients gradients;
};

struct BackwardCall {
  RandomCall call;
  Naive naive;
  std::vector<Tensor> memory;  ///< the memory of the views below, beside call.memory
  AttentionBackwardInputs inputs;
  GradientRequest request;  ///< requests every gradient
  /// compare_gradients() keeps its naive gradients here, because most targets round alike. A test changes no
  /// input after the first comparison.
  mutable std::list<ExpectedGradients> expected{};
};

class BackwardCallMaker {
 public:
  BackwardCallMaker(CheckedCall checked)
      : draw_(checked.call.seed ^ 0xbac4, checked.call.index),
        made_{std::move(checked.call), std::move(checked.naive), {}, {}, {}, {}} {}

  BackwardCall make() {
    const AttentionOptions& options = made_.call.options;
    made_.inputs.query = made_.call.query;
    made_.inputs.key = made_.call.key;
    made_.inputs.value = made_.call.value;
    made_.request.bias = options.bias.has_value();
    made_.request.sinks = options.sinks.has_value();
    run_forward();
    const DType dtype = draw_.chance(0.8) ? made_.call.query.dtype() : DType::f32;
    made_.inputs.grad_output = gradient(made_.inputs.output.shape(), dtype, false);
    const DType summary = made_.inputs.lse.dtype();
    if (draw_.chance(0.3)) made_.inputs.grad_lse = gradient(made_.inputs.lse.shape(), summary, false);
    if (draw_.chance(0.3)) {
      Dims shape = made_.inputs.lse.shape();
      shape.push_back(made_.naive.keys);
      made_.inputs.grad_weights = gradient(shape, summary, true);
    }
    return std::move(made_);
  }

 private:
  void run_forward() {
    AttentionOptions options = made_.call.options;
    options.kernel = Kernel::reference;
    Dims shape = made_.call.query.shape();
    shape[shape.size() - 1] = made_.naive.value_dim;
    const DType dtype = made_.call.query.dtype();
    AttentionOutputs outputs;
    outputs.output =
        strided_view(shape, options.output_dtype.value_or(dtype), draw_, made_.memory, /*may_repeat=*/false);
    Dims rows;
    for (int axis = 0; axis + 1 < shape.size(); ++axis) rows.push_back(shape[axis]);
    outputs.lse = strided_view(rows, dtype == DType::f64 ? DType::f64 : DType::f32, draw_, made_.memory,
                               /*may_repeat=*/false);
    (void)attention_into(made_.call.query, made_.call.key, made_.call.value, options, outputs);
    made_.inputs.output = outputs.output;
    made_.inputs.lse = outputs.lse;
  }

  // Numbers from N(0, 1), or NaN where the row or the key takes no part. `by_key`: keys are on the last axis.
  // A view that repeats shares memory between rows, so it has no NaN.
  TensorView gradient(const Dims& shape, DType dtype, bool by_key) {
    const MutableTensorView view = strided_view(shape, dtype, draw_, made_.memory);
    const bool has_columns = shape.size() == made_.call.query.rank();
    for_each_index(shape, [&](const Dims& at) {
      const int row = shape.size() - (has_columns ? 2 : 1);
      const std::int64_t b = row > 1 ? at[0] : 0;
      const std::int64_t h = row > 0 ? at[row - 1] : 0;
      const Naive& n = made_.naive;
      const bool unseen = by_key ? n.final_scores(b, h, at[row], at[row + 1]) == kMinusInfinity
                                 : n.lse(b, h, at[row]) == kMinusInfinity;
      const bool poison = unseen && !repeats(view);
      put(view, at, poison ? std::numeric_limits<double>::quiet_NaN() : draw_.normal());
    });
    return view;
  }

  Draw draw_;
  BackwardCall made_;
};

inline BackwardCall backward_call(std::uint64_t seed, std::uint64_t index, const CallLimits& limits = {}) {
  return BackwardCallMaker(checked_call(seed, index, limits)).make();
}

}  // namespace heed::test
