// The C functions of heed/heed.h, on top of heed::attention_into and attention_backward_into. Each runs its
// work inside guarded(), so that no exception leaves it.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "attention/api/c_delivery.hpp"
#include "attention/api/c_structs.hpp"
#include "attention/api/c_support.hpp"
#include "attention/api/halves.hpp"
#include "attention/check/results.hpp"
#include "attention/problem/operands.hpp"
#include "core/message.hpp"
#include "heed/attention/attention.hpp"
#include "heed/attention/backward.hpp"
#include "heed/attention/gate.hpp"
#include "heed/attention/targets.hpp"
#include "heed/error.hpp"
#include "heed/heed.h"
#include "heed/io/plan.hpp"
#include "heed/version.hpp"

namespace {

using heed::Dims;
using heed::DType;
using heed::Tensor;
using heed::TensorView;
using heed::detail::heads_of;
using heed::detail::is_given;
using heed::detail::refuse;
using namespace heed::detail::c_api;

static_assert(static_cast<int>(heed::ErrorCode::internal) == HEED_INTERNAL);
static_assert(static_cast<int>(heed::ErrorCode::invalid_argument) == HEED_INVALID_ARGUMENT);
static_assert(static_cast<int>(heed::ErrorCode::io) == HEED_IO);
static_assert(static_cast<int>(heed::ErrorCode::out_of_memory) == HEED_OUT_OF_MEMORY);
static_assert(static_cast<int>(DType::f64) == HEED_F64 && static_cast<int>(DType::boolean) == HEED_BOOL);
static_assert(heed::kMaxRank == HEED_MAX_RANK);

void require_shape(const char* name, const TensorView& view, const Dims& shape) {
  if (view.shape() != shape) refuse(name, " has shape ", view.shape(), "; ", shape, " is expected");
}

// A buffer of fixed size, because reporting a failed allocation must not need another one.
thread_local char last_error[1024] = "";

}  // namespace

heed_status heed_tensor_init(heed_tensor* tensor, void* data, std::int32_t dtype, std::int32_t rank,
                             const std::int64_t* shape) {
  return guarded([&] {
    require("tensor", tensor);
    require("shape", shape);
    (void)dtype_of("tensor", dtype);
    const Dims sizes = shape_of("tensor", rank, shape);
    const Dims strides = heed::contiguous_strides(sizes);
    *tensor = {};
    tensor->data = data;
    tensor->dtype = dtype;
    tensor->rank = rank;
    std::ranges::copy(sizes, tensor->shape);
    std::ranges::copy(strides, tensor->strides);
  });
}

heed_status heed_attention_options_init_sized(heed_attention_options* options, std::size_t struct_size) {
  return guarded([&] { initialise("options", options, struct_size, default_attention_options()); });
}

heed_status heed_attention_outputs_init_sized(heed_attention_outputs* outputs, std::size_t struct_size) {
  return guarded(
      [&] { initialise("outputs", outputs, struct_size, nothing_given<heed_attention_outputs>()); });
}

heed_status heed_attention(const heed_tensor* query, const heed_tensor* key, const heed_tensor* value,
                           const heed_attention_options* options, const heed_attention_outputs* outputs) {
  return guarded([&] {
    const TensorView q = view_of("query", query);
    const TensorView k = view_of("key", key);
    const TensorView v = view_of("value", value);
    const ForwardCall call = forward_call(options, outputs);
    call.report.tell(heed::attention_into(q, k, v, call.options, call.outputs));
  });
}

heed_status heed_plan_attention(const heed_tensor* query, const heed_tensor* key, const heed_tensor* value,
                                const heed_attention_options* options, const heed_attention_outputs* outputs,
                                char* text, std::size_t size, std::size_t* length) {
  return guarded([&] {
    if (size > 0) require("text", text);
    require("length", length);
    const TensorView q = view_of("query", query), k = view_of("key", key), v = view_of("value", value);
    const std::string plan =
        heed::io::to_json(heed::plan_attention(q, k, v, requests_of(forward_call(options, outputs))));
    *length = plan.size();
    if (size > 0) text[plan.copy(text, size - 1)] = '\0';
  });
}

heed_status heed_attention_backward_inputs_init_sized(heed_attention_backward_inputs* inputs,
                                                      std::size_t struct_size) {
  return guarded(
      [&] { initialise("inputs", inputs, struct_size, nothing_given<heed_attention_backward_inputs>()); });
}

heed_status heed_attention_gradients_init_sized(heed_attention_gradients* gradients,
                                                std::size_t struct_size) {
  return guarded(
      [&] { initialise("gradients", gradients, struct_size, nothing_given<heed_attention_gradients>()); });
}

heed_status heed_attention_backward(const heed_attention_backward_inputs* inputs,
                                    const heed_attention_options* options,
                                    const heed_attention_gradients* gradients) {
  return guarded([&] {
    const BackwardCall call = backward_call(inputs, options, gradients);
    call.report.tell(heed::attention_backward_into(call.inputs, call.options, call.gradients));
  });
}

heed_status heed_differential_attention(const heed_tensor* query, const heed_tensor* key,
                                        const heed_tensor* value, const heed_tensor* lambda,
                                        const heed_attention_options* options,
                                        const heed_attention_outputs* outputs, const heed_tensor* halves) {
  return guarded([&] {
    const TensorView q = view_of("query", query), k = view_of("key", key), v = view_of("value", value);
    const TensorView factors = view_of("lambda", lambda);
    const ForwardCall call = forward_call(options, outputs);
    deliver(
        heed::detail::differential_attention(q, k, v, factors, requests_of(call), check_of(call, q, halves)),
        call, halves);
  });
}

heed_status heed_differential_attention_backward(const heed_attention_backward_inputs* inputs,
                                                 const heed_tensor* lambda,
                                                 const heed_attention_options* options,
                                                 const heed_attention_gradients* gradients,
                                                 const heed_tensor* grad_lambda) {
  return guarded([&] {
    const BackwardCall call = backward_call(inputs, options, gradients);
    const TensorView factors = view_of("lambda", lambda);
    const heed::AttentionBackwardInputs& from = call.inputs;
    const heed::AttentionGradientViews& to = call.gradients;
    if (from.grad_lse || from.grad_weights || is_given(to.bias) || is_given(to.sinks) || is_given(to.decay) ||
        call.report.run != nullptr || call.report.recomputed_rows != nullptr)
      refuse(
          "more than query, key, value and their gradients is given; NULL is expected for other members in "
          "differential attention");
    heed::DifferentialResult result;
    if (from.query.rank() == 4 && from.value.rank() == 4) {  // the call below refuses other ranks
      const heed::Dims rows{from.query.size(0), from.query.size(1), from.query.size(2)};
      require_shape("inputs.lse", from.lse, rows);
      require_shape("inputs.output", from.output, {rows[0], rows[1], rows[2], from.value.size(3)});
      for (const std::int64_t half : {0, 1}) {
        heed::AttentionResult& softmax = half == 0 ? result.first : result.second;
        softmax.output = Tensor::copy_of(heads_of(from.output, half));
        softmax.lse = Tensor::copy_of(heads_of(from.lse, half));
      }
    }
    heed::MutableTensorView by_lambda;
    set(by_lambda, "grad_lambda", grad_lambda);
    std::vector<heed::detail::MemoryUse> all;
    expect_memory("gradients.query", to.query, from.query.shape(), from.query.dtype(), all);
    expect_memory("gradients.key", to.key, from.key.shape(), from.key.dtype(), all);
    expect_memory("gradients.value", to.value, from.value.shape(), from.value.dtype(), all);
    expect_memory("grad_lambda", by_lambda, factors.shape(), factors.dtype(), all);
    const heed::DifferentialGradients found = heed::differential_attention_backward(
        from.query, from.key, from.value, factors, result, from.grad_output, call.options);
    deliver(found.query, to.query);
    deliver(found.key, to.key);
    deliver(found.value, to.value);
    deliver(found.lambda, by_lambda);
  });
}

heed_status heed_gated(const heed_tensor* rows, const heed_tensor* gate, std::int32_t threads,
                       const heed_tensor* result) {
  return guarded([&] {
    const TensorView from = view_of("rows", rows), by = view_of("gate", gate);
    const heed::MutableTensorView to = view_of("result", result);
    (void)heed::detail::target_of("result", to, from.shape(), from.dtype(), 0);
    deliver(heed::gated(from, by, threads), to);
  });
}

heed_status heed_gate_gradient(const heed_tensor* gate, const heed_tensor* output,
                               const heed_tensor* grad_output, std::int32_t threads,
                               const heed_tensor* grad_gate) {
  return guarded([&] {
    const TensorView by = view_of("gate", gate), rows = view_of("output", output),
                     gradient = view_of("grad_output", grad_output);
    const heed::MutableTensorView to = view_of("grad_gate", grad_gate);
    (void)heed::detail::target_of("grad_gate", to, by.shape(), by.dtype(), 0);
    deliver(heed::gate_gradient(by, rows, gradient, threads), to);
  });
}

heed_status heed_target_count(std::size_t* count) {
  return guarded([&] {
    require("count", count);
    *count = heed::targets().size();
  });
}

heed_status heed_get_target(std::size_t index, heed_target* target) {
  return guarded([&] {
    require("target", target);
    const std::vector<heed::Target> all = heed::targets();
    if (index >= all.size())
      heed::detail::refuse("index is ", index, "; 0 to ", all.size() - 1, " is expected");
    const heed::Target& from = all[index];
    *target = {};
    copy_text(from.name, target->name);
    copy_text(from.description, target->description);
    copy_text(heed::detail::joined_texts(from.required, " "), target->required);
    target->available = from.available ? 1 : 0;
    target->chosen = from.chosen ? 1 : 0;
    copy_text(from.why, target->why);
  });
}

heed_status heed_set_target(const char* name) {
  return guarded([&] {
    require("name", name);
    heed::set_target(name);
  });
}

const char* heed_last_error(void) { return last_error; }

heed_status heed_set_last_error(heed_status status, const char* message) {
  if (message == nullptr) message = "";
  const std::size_t length = std::min(std::strlen(message), sizeof last_error - 1);
  std::memcpy(last_error, message, length);
  last_error[length] = '\0';
  return status;
}

const char* heed_version(void) { return heed::version().data(); }
