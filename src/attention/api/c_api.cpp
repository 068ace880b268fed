// The C functions of heed/heed.h over heed::attention_into and attention_backward_into. Each runs its work
// inside guarded(), which lets no exception out.
#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/api/c_attention.hpp"
#include "attention/api/c_structs.hpp"
#include "attention/api/c_support.hpp"
#include "attention/call/message.hpp"
#include "heed/attention.hpp"
#include "heed/backward.hpp"
#include "heed/error.hpp"
#include "heed/heed.h"
#include "heed/targets.hpp"
#include "heed/version.hpp"

namespace {

using heed::AttentionBackwardInputs;
using heed::AttentionGradientViews;
using heed::AttentionOptions;
using heed::AttentionOutputs;
using heed::Dims;
using heed::DType;
using heed::MutableTensorView;
using heed::TensorView;
using heed::detail::c_api::as_known;
using heed::detail::c_api::attend_into;
using heed::detail::c_api::copy_text;
using heed::detail::c_api::default_attention_options;
using heed::detail::c_api::dtype_of;
using heed::detail::c_api::guarded;
using heed::detail::c_api::initialise;
using heed::detail::c_api::nothing_given;
using heed::detail::c_api::optional_view;
using heed::detail::c_api::options_or_defaults;
using heed::detail::c_api::require;
using heed::detail::c_api::set;
using heed::detail::c_api::shape_of;
using heed::detail::c_api::view_of;
using heed::detail::c_api::write_run;

static_assert(static_cast<int>(heed::ErrorCode::internal) == HEED_INTERNAL);
static_assert(static_cast<int>(heed::ErrorCode::invalid_argument) == HEED_INVALID_ARGUMENT);
static_assert(static_cast<int>(heed::ErrorCode::io) == HEED_IO);
static_assert(static_cast<int>(heed::ErrorCode::out_of_memory) == HEED_OUT_OF_MEMORY);
static_assert(static_cast<int>(DType::f64) == HEED_F64 && static_cast<int>(DType::boolean) == HEED_BOOL);
static_assert(heed::kMaxRank == HEED_MAX_RANK);

AttentionBackwardInputs inputs_of(const heed_attention_backward_inputs& from) {
  AttentionBackwardInputs inputs;
  inputs.query = view_of("inputs.query", from.query);
  inputs.key = view_of("inputs.key", from.key);
  inputs.value = view_of("inputs.value", from.value);
  inputs.output = view_of("inputs.output", from.output);
  inputs.lse = view_of("inputs.lse", from.lse);
  inputs.grad_output = view_of("inputs.grad_output", from.grad_output);
  inputs.grad_lse = optional_view("inputs.grad_lse", from.grad_lse);
  inputs.grad_weights = optional_view("inputs.grad_weights", from.grad_weights);
  return inputs;
}

AttentionGradientViews gradients_of(const heed_attention_gradients& from) {
  AttentionGradientViews gradients;
  set(gradients.query, "gradients.query", from.query);
  set(gradients.key, "gradients.key", from.key);
  set(gradients.value, "gradients.value", from.value);
  set(gradients.bias, "gradients.bias", from.bias);
  set(gradients.sinks, "gradients.sinks", from.sinks);
  return gradients;
}

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
    std::copy(sizes.begin(), sizes.end(), tensor->shape);
    std::copy(strides.begin(), strides.end(), tensor->strides);
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
    attend_into(options, outputs, [&](const AttentionOptions& how, const AttentionOutputs& where) {
      return heed::attention_into(q, k, v, how, where);
    });
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
    require("inputs", inputs);
    require("gradients", gradients);
    const AttentionBackwardInputs from =
        inputs_of(as_known("inputs", inputs, nothing_given<heed_attention_backward_inputs>()));
    const heed_attention_gradients known =
        as_known("gradients", gradients, nothing_given<heed_attention_gradients>());
    const heed::AttentionRun run =
        heed::attention_backward_into(from, options_or_defaults(options), gradients_of(known));
    if (known.run != nullptr) write_run(run, *known.run);
    if (known.recomputed_rows != nullptr) *known.recomputed_rows = run.recomputed_rows;
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
    std::string required;
    for (const std::string& feature : from.required) required += (required.empty() ? "" : " ") + feature;
    copy_text(from.name, target->name);
    copy_text(from.description, target->description);
    copy_text(required, target->required);
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

const char* heed_version(void) { return heed::version().data(); }
