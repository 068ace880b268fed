// Calls over ranks beside the same calls in one process: shards of the inputs, and results joined on rank 0.
#pragma once

#include <string>

#include "attention_support.hpp"
#include "backward_call.hpp"
#include "heed/attention/results.hpp"
#include "heed/distributed/attention.hpp"
#include "ranks.hpp"
#include "support.hpp"

namespace heed::test {

/// Concatenates the results of all ranks on rank 0.
inline AttentionResult whole_of(const distributed::Result& own, const distributed::Layout& layout,
                                const AttentionOptions& options) {
  AttentionResult whole;
  whole.kernel = own.kernel;
  whole.isa = own.isa;
  whole.recomputed_rows = own.recomputed_rows;
  for (std::size_t i = 0; i < kResultCount; ++i)
    if (const ResultEntry& entry = result_entry(i); is_asked_for(entry, options))
      result<Tensor>(whole, i) = joined_result(result<Tensor>(own, i), entry.shape, layout);
  return whole;
}

inline std::string other_bits(const AttentionResult& whole, const AttentionResult& one,
                              const AttentionOptions& options) {
  for (std::size_t i = 0; i < kResultCount; ++i) {
    const ResultEntry& entry = result_entry(i);
    if (!is_asked_for(entry, options)) continue;
    const auto same = same_bits(result<Tensor>(whole, i), result<Tensor>(one, i));
    if (!same) return std::string(entry.name()) + " has other bits than one process: " + same.message();
  }
  return "";
}

/// This rank's share of the inputs of the backward pass.
struct BackwardShard {
  BackwardShard(const BackwardCall& made, const distributed::Layout& layout) : forward(made.call, layout) {
    const int own = rank();
    const auto rows = [&](const TensorView& view, int axis) { return layout.query.shard(view, -axis, own); };
    output = rows(made.inputs.output, 2);
    lse = rows(made.inputs.lse, 1);
    grad_output = rows(made.inputs.grad_output, 2);
    inputs = {forward.query, forward.key, forward.value, output, lse, grad_output};
    if (made.inputs.grad_lse) inputs.grad_lse = grad_lse = rows(*made.inputs.grad_lse, 1);
    if (made.inputs.grad_weights) inputs.grad_weights = grad_weights = rows(*made.inputs.grad_weights, 2);
  }

  ShardedCall forward;
  Tensor output, lse, grad_output, grad_lse, grad_weights;
  AttentionBackwardInputs inputs;
};

inline AttentionGradients whole_of(const distributed::Gradients& own, const BackwardCall& made,
                                   const distributed::Layout& layout) {
  AttentionGradients whole;
  whole.kernel = own.kernel;
  whole.isa = own.isa;
  whole.query = joined(own.query, layout.query, 2);
  whole.key = joined(own.key, layout.key, 2);
  whole.value = joined(own.value, layout.key, 2);
  if (made.request.bias) {
    const TensorView bias = collapsed(*made.call.options.bias);
    // If every rank has exactly one row, a bias of one row is each rank's own.
    bool one_each = true;
    for (int one = 0; one < ranks(); ++one) one_each = one_each && layout.query.rows(one) == 1;
    const bool has_rows = bias.rank() >= 2 && (bias.size(-2) != 1 || one_each || layout.query.length() == 1);
    whole.bias = has_rows ? joined(own.bias, layout.query, 2) : own.bias;
  }
  whole.sinks = own.sinks;
  whole.decay = own.decay;
  return whole;
}

/// The gradients in one process, of tensors that lie as the shards do.
inline AttentionGradients one_process(const BackwardCall& made) {
  const auto copy = [](const TensorView& view) { return Tensor::copy_of(view); };
  const Tensor query = copy(made.inputs.query), key = copy(made.inputs.key), value = copy(made.inputs.value),
               output = copy(made.inputs.output), grad_output = copy(made.inputs.grad_output);
  AttentionBackwardInputs inputs = made.inputs;
  inputs.query = query;
  inputs.key = key;
  inputs.value = value;
  inputs.output = output;
  inputs.grad_output = grad_output;
  return attention_backward(inputs, made.call.options, made.request);
}

inline std::string other_bits(const AttentionGradients& whole, const AttentionGradients& one) {
  if (!same_bits(whole.query, one.query)) return "dQ has other bits than one process";
  if (!same_bits(whole.key, one.key)) return "dK has other bits than one process";
  if (!same_bits(whole.value, one.value)) return "dV has other bits than one process";
  return "";
}

}  // namespace heed::test
