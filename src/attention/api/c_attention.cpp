#include "attention/api/c_attention.hpp"

#include <iterator>
#include <utility>

namespace heed::detail::c_api {

static_assert(static_cast<int>(Kernel::fused) == HEED_KERNEL_FUSED);
static_assert(static_cast<int>(ScoresStage::bias) == HEED_SCORES_BIAS);
static_assert(static_cast<int>(Align::bottom_right) == HEED_BOTTOM_RIGHT);

namespace {

AttentionOptions options_of(const heed_attention_options& from) {
  if (from.reserved != 0) refuse("options.reserved is ", from.reserved, "; 0 is expected");
  AttentionOptions options;
  if (flag("options.has_scale", from.has_scale)) options.scale = from.scale;
  options.causal = flag("options.causal", from.causal);
  options.align = choice("options.align", from.align, Align::bottom_right);
  if (flag("options.has_query_offset", from.has_query_offset)) options.query_offset = from.query_offset;
  options.window = {from.window_left, from.window_right};
  options.softcap = from.softcap;
  options.mask = optional_view("mask", from.mask);
  options.bias = optional_view("bias", from.bias);
  options.alibi_slopes = optional_view("alibi_slopes", from.alibi_slopes);
  options.decay = optional_view("decay", from.decay);
  options.sinks = optional_view("sinks", from.sinks);
  options.kv_lengths = optional_view("kv_lengths", from.kv_lengths);
  options.query_segments = optional_view("query_segments", from.query_segments);
  options.key_segments = optional_view("key_segments", from.key_segments);
  options.dropout = {from.dropout_probability, from.dropout_seed, from.dropout_offset};
  options.scores_stage = choice("options.scores_stage", from.scores_stage, ScoresStage::bias);
  options.received_last = from.received_last;
  options.kernel = choice("options.kernel", from.kernel, Kernel::fused);
  options.threads = from.threads;
  if (from.sparse_mask != nullptr) options.sparse_mask = from.sparse_mask->mask;
  if (from.score_mod != nullptr) options.score_mod = from.score_mod->mod;
  return options;
}

// The members of heed_attention_outputs, in the order of the results table.
constexpr const heed_tensor* heed_attention_outputs::*kOutputs[] = {
    &heed_attention_outputs::output,      &heed_attention_outputs::weights,
    &heed_attention_outputs::scores,      &heed_attention_outputs::lse,
    &heed_attention_outputs::max_score,   &heed_attention_outputs::entropy,
    &heed_attention_outputs::distance,    &heed_attention_outputs::masked_mass,
    &heed_attention_outputs::top_k_index, &heed_attention_outputs::top_k_weight,
    &heed_attention_outputs::received,    &heed_attention_outputs::received_last,
    &heed_attention_outputs::map};
static_assert(std::size(kOutputs) == kResultCount, "a result has no member in heed_attention_outputs");

AttentionOutputs outputs_of(const heed_attention_outputs& from) {
  AttentionOutputs outputs;
  for (std::size_t i = 0; i < std::size(kOutputs); ++i)
    set(result(outputs, i), result_entry(i).path, from.*kOutputs[i]);
  return outputs;
}

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
  set(gradients.decay, "gradients.decay", from.decay);
  return gradients;
}

}  // namespace

std::optional<TensorView> optional_view(std::string_view name, const heed_tensor* tensor) {
  if (tensor == nullptr) return std::nullopt;
  return view_of(name, tensor);
}

void set(MutableTensorView& to, std::string_view name, const heed_tensor* tensor) {
  static double anywhere[1] = {};
  if (tensor == nullptr) return;
  to = view_of(name, tensor);
  // A view without elements, and so without memory, is still a request: other ranks may have elements.
  if (to.data() == nullptr) to = {anywhere, to.dtype(), to.shape(), to.strides()};
}

bool flag(std::string_view name, std::int32_t value) {
  if (value != 0 && value != 1) refuse(name, " is ", value, "; 0 or 1 is expected");
  return value == 1;
}

heed_attention_options default_attention_options() {
  heed_attention_options options{};
  options.struct_size = sizeof options;
  options.window_left = -1;
  options.window_right = -1;
  options.scores_stage = HEED_SCORES_BIAS;
  return options;
}

AttentionOptions options_or_defaults(const heed_attention_options* options) {
  const heed_attention_options defaults = default_attention_options();
  return options_of(options == nullptr ? defaults : as_known("options", options, defaults));
}

void Report::tell(const AttentionRun& took) const {
  if (run != nullptr) {
    run->kernel = static_cast<std::int32_t>(took.kernel);
    run->threads = took.threads;
    copy_text(took.isa, run->isa);
  }
  if (recomputed_rows != nullptr) *recomputed_rows = took.recomputed_rows;
}

ForwardCall forward_call(const heed_attention_options* options, const heed_attention_outputs* outputs) {
  require("outputs", outputs);
  AttentionOptions how = options_or_defaults(options);
  const auto known = as_known("outputs", outputs, nothing_given<heed_attention_outputs>());
  AttentionOutputs where = outputs_of(known);
  if (known.output != nullptr && where.output.dtype() == DType::f32) how.output_dtype = DType::f32;
  return {std::move(how), std::move(where), {known.run, known.recomputed_rows}};
}

BackwardCall backward_call(const heed_attention_backward_inputs* inputs,
                           const heed_attention_options* options, const heed_attention_gradients* gradients) {
  require("inputs", inputs);
  require("gradients", gradients);
  AttentionBackwardInputs from =
      inputs_of(as_known("inputs", inputs, nothing_given<heed_attention_backward_inputs>()));
  const auto known = as_known("gradients", gradients, nothing_given<heed_attention_gradients>());
  return {
      std::move(from), options_or_defaults(options), gradients_of(known), {known.run, known.recomputed_rows}};
}

}  // namespace heed::detail::c_api
