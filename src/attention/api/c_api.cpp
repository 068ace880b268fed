// The C functions of heed/heed.h over heed::attention_into and attention_backward_into. Each runs its work
// inside guarded(), which lets no exception out.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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
using heed::detail::refuse;
using heed::detail::c_api::dtype_of;
using heed::detail::c_api::guarded;
using heed::detail::c_api::require;
using heed::detail::c_api::shape_of;
using heed::detail::c_api::view_of;

static_assert(static_cast<int>(heed::ErrorCode::internal) == HEED_INTERNAL);
static_assert(static_cast<int>(heed::ErrorCode::invalid_argument) == HEED_INVALID_ARGUMENT);
static_assert(static_cast<int>(heed::ErrorCode::io) == HEED_IO);
static_assert(static_cast<int>(heed::ErrorCode::out_of_memory) == HEED_OUT_OF_MEMORY);
static_assert(static_cast<int>(DType::f64) == HEED_F64 && static_cast<int>(DType::boolean) == HEED_BOOL);
static_assert(static_cast<int>(heed::Kernel::fused) == HEED_KERNEL_FUSED);
static_assert(static_cast<int>(heed::ScoresStage::bias) == HEED_SCORES_BIAS);
static_assert(static_cast<int>(heed::Align::bottom_right) == HEED_BOTTOM_RIGHT);
static_assert(heed::kMaxRank == HEED_MAX_RANK);

// ---- Structs that grow ------------------------------------------------------------------------------------

// Every member is 8 bytes, or 4 beside another of 4: a size that is a multiple of 8 never ends inside one.
constexpr std::size_t kMemberStep = 8;
static_assert(sizeof(heed_attention_options) % kMemberStep == 0 &&
              sizeof(heed_attention_outputs) % kMemberStep == 0 &&
              sizeof(heed_attention_backward_inputs) % kMemberStep == 0 &&
              sizeof(heed_attention_gradients) % kMemberStep == 0);
// Far more than any version will have: what is larger was never initialised.
constexpr std::size_t kLargestStruct = 4096;

void check_size(std::string_view name, std::size_t size) {
  if (size < kMemberStep || size > kLargestStruct || size % kMemberStep != 0)
    refuse(name, ".struct_size is ", size,
           "; the sizeof of the struct, as its init function sets it, is expected");
}

// The caller's struct as this version knows it: what it lacks has its default, and what it has beyond must be
// 0. It may be smaller or larger than Struct, so that it is read as bytes.
template <class Struct>
Struct as_known(std::string_view name, const void* given, const Struct& defaults) {
  const auto* bytes = static_cast<const unsigned char*>(given);
  std::size_t size = 0;
  std::memcpy(&size, bytes, sizeof size);  // struct_size comes first
  check_size(name, size);
  Struct known = defaults;
  std::memcpy(&known, bytes, std::min(size, sizeof(Struct)));
  for (std::size_t at = sizeof(Struct); at < size; ++at)
    if (bytes[at] != 0)
      refuse(name, " asks for something that heed ", heed::version(), " does not know: byte ", at, " of its ",
             size, " is not 0, and this version knows ", sizeof(Struct));
  return known;
}
static_assert(offsetof(heed_attention_options, struct_size) == 0);
static_assert(offsetof(heed_attention_outputs, struct_size) == 0);
static_assert(offsetof(heed_attention_backward_inputs, struct_size) == 0);
static_assert(offsetof(heed_attention_gradients, struct_size) == 0);

heed_attention_options default_options() {
  heed_attention_options options{};
  options.struct_size = sizeof options;
  options.window_left = -1;
  options.window_right = -1;
  options.scores_stage = HEED_SCORES_BIAS;
  return options;
}

// A struct of pointers alone: none is given.
template <class Struct>
Struct nothing_given() {
  Struct pointers{};
  pointers.struct_size = sizeof pointers;
  return pointers;
}

// Writes the defaults into a struct of the caller's size: cut off where it is older, followed by 0 where
// newer.
template <class Struct>
void initialise(std::string_view name, Struct* to, std::size_t size, Struct defaults) {
  require(name, to);
  check_size(name, size);
  defaults.struct_size = size;
  std::memset(static_cast<void*>(to), 0, size);
  std::memcpy(static_cast<void*>(to), &defaults, std::min(size, sizeof(Struct)));
}

// ---- From C to C++ ----------------------------------------------------------------------------------------

std::optional<TensorView> optional_view(std::string_view name, const heed_tensor* tensor) {
  if (tensor == nullptr) return std::nullopt;
  return view_of(name, tensor);
}

bool flag(std::string_view name, std::int32_t value) {
  if (value != 0 && value != 1) refuse("options.", name, " is ", value, "; 0 or 1 is expected");
  return value == 1;
}

template <class Enum>
Enum choice(std::string_view name, std::int32_t value, Enum last) {
  if (value < 0 || value > static_cast<std::int32_t>(last))
    refuse("options.", name, " is ", value, "; 0 to ", static_cast<std::int32_t>(last), " is expected");
  return static_cast<Enum>(value);
}

AttentionOptions options_of(const heed_attention_options& from) {
  if (from.reserved != 0) refuse("options.reserved is ", from.reserved, "; 0 is expected");
  AttentionOptions options;
  if (flag("has_scale", from.has_scale)) options.scale = from.scale;
  options.causal = flag("causal", from.causal);
  options.align = choice("align", from.align, heed::Align::bottom_right);
  if (flag("has_query_offset", from.has_query_offset)) options.query_offset = from.query_offset;
  options.window = {from.window_left, from.window_right};
  options.softcap = from.softcap;
  options.mask = optional_view("mask", from.mask);
  options.bias = optional_view("bias", from.bias);
  options.alibi_slopes = optional_view("alibi_slopes", from.alibi_slopes);
  options.sinks = optional_view("sinks", from.sinks);
  options.kv_lengths = optional_view("kv_lengths", from.kv_lengths);
  options.query_segments = optional_view("query_segments", from.query_segments);
  options.key_segments = optional_view("key_segments", from.key_segments);
  options.dropout = {from.dropout_probability, from.dropout_seed, from.dropout_offset};
  options.scores_stage = choice("scores_stage", from.scores_stage, heed::ScoresStage::bias);
  options.received_last = from.received_last;
  options.kernel = choice("kernel", from.kernel, heed::Kernel::fused);
  options.threads = from.threads;
  if (from.sparse_mask != nullptr) options.sparse_mask = from.sparse_mask->mask;
  if (from.score_mod != nullptr) options.score_mod = from.score_mod->mod;
  return options;
}

// A view to write to, where one is given.
void set(MutableTensorView& to, std::string_view name, const heed_tensor* tensor) {
  if (tensor != nullptr) to = view_of(name, tensor);
}

// The members of heed_attention_outputs, in the order of the table of results.
constexpr const heed_tensor* heed_attention_outputs::*kOutputs[] = {
    &heed_attention_outputs::output,      &heed_attention_outputs::weights,
    &heed_attention_outputs::scores,      &heed_attention_outputs::lse,
    &heed_attention_outputs::max_score,   &heed_attention_outputs::entropy,
    &heed_attention_outputs::distance,    &heed_attention_outputs::dropped,
    &heed_attention_outputs::top_k_index, &heed_attention_outputs::top_k_weight,
    &heed_attention_outputs::received,    &heed_attention_outputs::received_last,
    &heed_attention_outputs::map};

AttentionOutputs outputs_of(const heed_attention_outputs& from) {
  AttentionOutputs outputs;
  for (std::size_t i = 0; i < std::size(kOutputs); ++i)
    set(heed::result(outputs, i), heed::result_entry(i).path, from.*kOutputs[i]);
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
  return gradients;
}

// NULL: the defaults.
AttentionOptions options_or_defaults(const heed_attention_options* options) {
  const heed_attention_options defaults = default_options();
  return options_of(options == nullptr ? defaults : as_known("options", options, defaults));
}

// As much of the text as there is room for, and zeros.
template <std::size_t kSize>
void copy_text(std::string_view from, char (&to)[kSize]) {
  std::memset(to, 0, kSize);
  std::memcpy(to, from.data(), std::min(from.size(), kSize - 1));
}

void write_run(const heed::AttentionRun& run, heed_attention_run& to) {
  to.kernel = static_cast<std::int32_t>(run.kernel);
  to.threads = run.threads;
  copy_text(run.isa, to.isa);
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
  return guarded([&] { initialise("options", options, struct_size, default_options()); });
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
    require("outputs", outputs);
    AttentionOptions how = options_or_defaults(options);
    const heed_attention_outputs known =
        as_known("outputs", outputs, nothing_given<heed_attention_outputs>());
    const AttentionOutputs where = outputs_of(known);
    if (known.output != nullptr && where.output.dtype() == DType::f32) how.output_dtype = DType::f32;
    const heed::AttentionRun run = heed::attention_into(q, k, v, how, where);
    if (known.run != nullptr) write_run(run, *known.run);
    if (known.recomputed_rows != nullptr) *known.recomputed_rows = run.recomputed_rows;
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
