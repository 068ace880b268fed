// The doors C++ and C of scripts/soak: soak_calls SEED COUNT makes random calls of the forward and the
// backward pass on the instruction sets of this machine. It compares C++'s results with the definitions, and
// C's with C++'s, bit for bit. It prints how many rows had a bound that checks nothing, or the first failure.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "attention_support.hpp"
#include "checked_call.hpp"
#include "describe_call.hpp"
#include "each_target.hpp"
#include "fused_calls.hpp"
#include "fused_rounding.hpp"
#include "gradient_errors.hpp"
#include "gradient_rounding.hpp"
#include "heed/heed.h"
#include "path_watch.hpp"

namespace {

using namespace heed::test;

// The members of both structs that are tensors, in the same order.
constexpr std::array kInputs{&heed_attention_options::mask,         &heed_attention_options::bias,
                             &heed_attention_options::alibi_slopes, &heed_attention_options::sinks,
                             &heed_attention_options::kv_lengths,   &heed_attention_options::query_segments,
                             &heed_attention_options::key_segments};
constexpr std::array kOptions{&heed::AttentionOptions::mask,         &heed::AttentionOptions::bias,
                              &heed::AttentionOptions::alibi_slopes, &heed::AttentionOptions::sinks,
                              &heed::AttentionOptions::kv_lengths,   &heed::AttentionOptions::query_segments,
                              &heed::AttentionOptions::key_segments};
// In the order of heed::kResults.
constexpr std::array kOutputs{&heed_attention_outputs::output,      &heed_attention_outputs::weights,
                              &heed_attention_outputs::scores,      &heed_attention_outputs::lse,
                              &heed_attention_outputs::max_score,   &heed_attention_outputs::entropy,
                              &heed_attention_outputs::distance,    &heed_attention_outputs::masked_mass,
                              &heed_attention_outputs::top_k_index, &heed_attention_outputs::top_k_weight,
                              &heed_attention_outputs::received,    &heed_attention_outputs::received_last,
                              &heed_attention_outputs::map};

heed_tensor c_view(const heed::TensorView& view) {
  heed_tensor tensor{};
  tensor.data = const_cast<void*>(view.data());
  tensor.dtype = static_cast<std::int32_t>(view.dtype());
  tensor.rank = view.rank();
  for (int axis = 0; axis < view.rank(); ++axis) {
    tensor.shape[axis] = view.size(axis);
    tensor.strides[axis] = view.strides()[axis];
  }
  return tensor;
}

// Makes the call by the C ABI into tensors shaped as `expected`. Returns "" or the difference.
std::string in_c(const RandomCall& call, const heed::AttentionResult& expected) {
  const heed::AttentionOptions& o = call.options;
  heed_attention_options options;
  heed_attention_outputs outputs;
  heed_attention_options_init(&options);
  heed_attention_outputs_init(&outputs);
  options.causal = o.causal ? 1 : 0;
  options.align = static_cast<std::int32_t>(o.align);
  options.has_scale = o.scale ? 1 : 0;
  options.scale = o.scale.value_or(0);
  options.has_query_offset = o.query_offset ? 1 : 0;
  options.query_offset = o.query_offset.value_or(0);
  options.window_left = o.window.left;
  options.window_right = o.window.right;
  options.softcap = o.softcap;
  options.dropout_probability = o.dropout.probability;
  options.dropout_seed = o.dropout.seed;
  options.dropout_offset = o.dropout.offset;
  options.scores_stage = static_cast<std::int32_t>(o.scores_stage);
  options.received_last = o.received_last;
  options.threads = o.threads;
  std::array<heed_tensor, kInputs.size()> inputs{};
  for (std::size_t n = 0; n < kInputs.size(); ++n)
    if (const auto& view = o.*kOptions[n]) {
      inputs[n] = c_view(*view);
      options.*kInputs[n] = &inputs[n];
    }
  std::array<heed::Tensor, kOutputs.size()> got;
  std::array<heed_tensor, kOutputs.size()> views{};
  for (std::size_t n = 0; n < kOutputs.size(); ++n) {
    const heed::Tensor& like = expected.*heed::kResults<heed::Tensor>[n].member;
    if (like.shape() == heed::Tensor().shape()) continue;  // not requested
    got[n] = heed::Tensor(like.shape(), like.dtype());
    views[n] = c_view(got[n].mutable_view());
    outputs.*kOutputs[n] = &views[n];
  }
  const heed_tensor query = c_view(call.query), key = c_view(call.key), value = c_view(call.value);
  if (heed_attention(&query, &key, &value, &options, &outputs) != HEED_OK) return heed_last_error();
  for (std::size_t n = 0; n < kOutputs.size(); ++n) {
    const auto& line = heed::kResults<heed::Tensor>[n];
    if (outputs.*kOutputs[n] != nullptr && !same_bits(got[n], expected.*line.member))
      return "C: other bits of " + std::string(line.entry.name());
  }
  return "";
}

std::vector<CallLimits> kinds() {
  return {small_calls(), extreme_calls(),  tile_calls(),      wide_calls(),     decoding_calls(),
          small_calls(), document_calls(), threshold_calls(), received_calls(), matrix_gradient_calls()};
}

std::string forward(const CheckedCall& checked, const std::string& target, PathWatch& paths,
                    RowTally& tally) {
  const RandomCall& call = checked.call;
  const heed::AttentionResult result = heed::attention(call.query, call.key, call.value, call.options);
  std::string failure = compare_results(result, call.options, checked.naive,
                                        fused_rounding(call.query.dtype(), call.options, target), tally,
                                        [&](auto b, auto h, auto i) { return paths.fell_back(b, h, i); });
  return failure.empty() ? in_c(call, result) : failure;
}

std::string backward(BackwardCall made, const std::string& target, PathWatch& paths, RowTally& tally) {
  made.inputs.grad_weights.reset();  // which only the reference kernel takes
  const auto gradients = heed::attention_backward(made.inputs, made.call.options, made.request);
  return compare_gradients(made, gradients, gradient_rounding(made, target), tally,
                           [&](auto b, auto h, auto i) { return paths.gradients_fell_back(b, h, i); });
}

}  // namespace

int main(int count, char** words) {
  if (count != 3) {
    std::cerr << "soak_calls SEED COUNT\n";
    return 2;
  }
  const std::uint64_t seed = std::strtoull(words[1], nullptr, 10);
  const std::uint64_t calls = std::strtoull(words[2], nullptr, 10);
  const EachTarget targets;
  const std::vector<CallLimits> limits = kinds();
  PathWatch paths;
  RowTally tally;
  for (std::uint64_t index = 0; index < calls; ++index) {
    Draw draw(seed, index);
    const CallLimits& kind = limits[static_cast<std::size_t>(draw.between(0, 9))];
    const std::string target = draw.pick(targets.available());
    const bool goes_back = draw.chance(0.4);
    CheckedCall checked = checked_call(seed, index, kind);
    checked.call.options.kernel = heed::Kernel::automatic;
    checked.call.options.threads = static_cast<int>(draw.between(1, 3));
    heed::set_target(target);
    paths.start_call();
    const std::string failure =
        goes_back ? backward(BackwardCallMaker(std::move(checked)).make(), target, paths, tally)
                  : forward(checked, target, paths, tally);
    if (!failure.empty()) {
      std::cout << target << (goes_back ? ", backward: " : ", forward: ") << failure << "\n"
                << describe(random_call(seed, index, kind)) << "\n";
      return 1;
    }
    paths.end_call();
  }
  std::cout << "{\"rows\": " << tally.rows << ", \"loose rows\": " << tally.loose << "}\n";
}
