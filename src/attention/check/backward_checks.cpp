#include "attention/check/backward_checks.hpp"

#include <initializer_list>
#include <string_view>

#include "attention/check/checks.hpp"
#include "attention/check/results.hpp"
#include "attention/problem/operands.hpp"
#include "core/message.hpp"
#include "core/tensor/lifted.hpp"

namespace heed::detail {
namespace {

// Converts a view of exactly this shape. `shape` lacks the first `missing` axes of [B, H, …], which get
// stride 0.
Operand operand_of(std::string_view name, const TensorView& view, const Dims& shape, int missing) {
  if (view.shape() != shape) refuse(name, " has shape ", view.shape(), "; ", shape, " is expected");
  check_memory(name, view);
  Operand operand{view.data(), view.dtype(), {}};
  for (int axis = 0; axis < view.rank(); ++axis) operand.stride[axis + missing] = view.strides()[axis];
  return operand;
}

class Reader {
 public:
  Reader(const Problem& problem, int rank) : p_(problem), rank_(rank) {}

  // [B, H, Lq, Dv], in the inputs' dtype or f32.
  Operand output(std::string_view name, const TensorView& view) const {
    if (view.dtype() != p_.dtype && view.dtype() != DType::f32)
      refuse(name, " has dtype ", view.dtype(), "; ", p_.dtype, " as in query",
             p_.dtype == DType::f32 ? "" : " or f32", " is expected");
    return operand_of(name, view, shape_of(p_, rank_, {p_.query_length, p_.value_dim}), 4 - rank_);
  }

  // [B, H, Lq] or [B, H, Lq, Lk], in the dtype that attention() returns.
  Operand summary(std::string_view name, const TensorView& view,
                  std::initializer_list<std::int64_t> sizes) const {
    const DType dtype = summary_dtype(p_);
    if (view.dtype() != dtype) refuse(name, " has dtype ", view.dtype(), "; ", dtype, " is expected");
    return operand_of(name, view, shape_of(p_, rank_, sizes), 4 - rank_);
  }

 private:
  const Problem& p_;
  int rank_;
};

// The target of a gradient that is summed to the view's shape. The view must broadcast to `shape`, and have
// `dtype` or f64. The result's strides and sizes follow the last axes of `shape`; they are 0 and 1 on summed
// axes.
Output summed_target(std::string_view name, const MutableTensorView& view, const Dims& shape, DType dtype,
                     Dims& size) {
  (void)broadcast(name, view, shape);
  const DType own = view.dtype() == DType::f64 ? DType::f64 : dtype;
  Output target = target_of(name, view, view.shape(), own, shape.size() - view.rank());
  size = shape;
  for (int axis = 0; axis < shape.size(); ++axis) {
    const int at = axis - (shape.size() - view.rank());
    if (at >= 0 && view.shape()[at] == shape[axis]) continue;
    size[axis] = 1;
    target.stride[axis] = 0;
  }
  return target;
}

}  // namespace

BackwardProblem check_backward(const AttentionBackwardInputs& inputs, const AttentionOptions& options,
                               const CallPart* part) {
  BackwardProblem problem;
  problem.forward = check_call(inputs.query, inputs.key, inputs.value, options, part);
  const Problem& p = problem.forward;
  const Reader read(p, inputs.query.rank());
  problem.output = read.output("output", inputs.output);
  problem.lse = read.summary("lse", inputs.lse, {p.query_length});
  problem.grad_output = read.output("grad_output", inputs.grad_output);
  if (inputs.grad_lse) problem.grad_lse = read.summary("grad_lse", *inputs.grad_lse, {p.query_length});
  if (inputs.grad_weights)
    problem.grad_weights = read.summary("grad_weights", *inputs.grad_weights, {p.query_length, p.key_length});
  return problem;
}

AttentionGradients allocate_gradients(const AttentionBackwardInputs& inputs, const AttentionOptions& options,
                                      const GradientRequest& request, BackwardProblem& problem) {
  const auto like = [](const TensorView& view, const Dims& shape) {
    return Tensor::uninitialized(shape, view.dtype());
  };
  if (request.bias && !options.bias) refuse("request.bias is true, but the call has no bias");
  if (request.sinks && !options.sinks) refuse("request.sinks is true, but the call has no sinks");
  if (request.decay && !options.decay) refuse("request.decay is true, but the call has no decay");
  AttentionGradients gradients;
  if (request.query) gradients.query = like(inputs.query, inputs.query.shape());
  if (request.key) gradients.key = like(inputs.key, inputs.key.shape());
  if (request.value) gradients.value = like(inputs.value, inputs.value.shape());
  if (request.bias) gradients.bias = like(*options.bias, own_shape(*options.bias));
  if (request.sinks) gradients.sinks = like(*options.sinks, own_shape(*options.sinks));
  if (request.decay) gradients.decay = like(*options.decay, own_shape(*options.decay));
  bind_gradients(
      {gradients.query, gradients.key, gradients.value, gradients.bias, gradients.sinks, gradients.decay},
      inputs, options, problem);
  return gradients;
}

void bind_gradients(const AttentionGradientViews& gradients, const AttentionBackwardInputs& inputs,
                    const AttentionOptions& options, BackwardProblem& problem) {
  const Problem& p = problem.forward;
  const int missing = 4 - inputs.query.rank();
  const auto bind = [&](std::string_view name, const MutableTensorView& view, const TensorView& like,
                        Output& target) {
    if (is_given(view)) target = target_of(name, view, like.shape(), like.dtype(), missing);
  };
  bind("gradients.query", gradients.query, inputs.query, problem.grad_query);
  bind("gradients.key", gradients.key, inputs.key, problem.grad_key);
  bind("gradients.value", gradients.value, inputs.value, problem.grad_value);
  if (is_given(gradients.bias)) {
    if (!options.bias) refuse("gradients.bias is given, but the call has no bias");
    Dims size;
    problem.grad_bias =
        summed_target("gradients.bias", gradients.bias, {p.batch, p.heads, p.query_length, p.key_length},
                      options.bias->dtype(), size);
    for (int axis = 0; axis < 4; ++axis) problem.grad_bias_size[axis] = size[axis];
  }
  if (is_given(gradients.sinks)) {
    if (!options.sinks) refuse("gradients.sinks is given, but the call has no sinks");
    Dims size;
    problem.grad_sinks =
        summed_target("gradients.sinks", gradients.sinks, {p.heads}, options.sinks->dtype(), size);
    problem.grad_sinks.stride[1] = problem.grad_sinks.stride[0];  // [H] is written as [1, H]
    problem.grad_sinks.stride[0] = 0;
  }
  if (is_given(gradients.decay)) {
    if (!options.decay) refuse("gradients.decay is given, but the call has no decay");
    Dims size;
    problem.grad_decay = summed_target("gradients.decay", gradients.decay,
                                       {p.batch, p.heads, p.decay_positions()}, options.decay->dtype(), size);
  }
}

}  // namespace heed::detail
