// The common part of SelfAttention and MultiHeadAttention: linear() projections around attention().
#pragma once

#include "heed/nn/layers.hpp"

namespace heed::nn::detail {

struct Parts {
  const Linear& query;     ///< [H d_k, D]
  const Linear& key;       ///< [Hkv d_k, C]
  const Linear& value;     ///< [Hkv d_v, C]
  const Linear* out_proj;  ///< [out, H d_v], or none
  std::int64_t heads;
  std::int64_t kv_heads;
};

/// Throws Error (invalid_argument) that names the first part that does not fit the others.
void check_parts(const Parts& parts);

/// A layer computes queries from x, and keys and values from context.
struct LayerInputs {
  const TensorView &x, &context;
};

/// Checks parts, inputs and options, then runs the layer.
[[nodiscard]] LayerResult run_layer(const Parts& parts, const LayerInputs& inputs,
                                    const AttentionOptions& options,
                                    const AttentionFunctions& functions = {});

/// The destinations of the gradients of a layer's parts.
struct PartGradients {
  Linear& query;
  Linear& key;
  Linear& value;
  Linear* out_proj;
};

/// The backward pass of run_layer(). For self-attention the gradient of x is the sum of the two.
[[nodiscard]] CrossGradients run_layer_backward(const Parts& parts, const TensorView& grad_output,
                                                const LayerInputs& inputs, const LayerResult& result,
                                                const AttentionOptions& options, const PartGradients& grads,
                                                const AttentionFunctions& functions = {});

/// Appends the parameters of `part`, with "prefix." before their names.
template <class Part>
void append_parameters(std::vector<NamedParameter>& all, const std::string& prefix, Part& part) {
  for (NamedParameter& parameter : part.parameters())
    all.push_back({prefix + "." + parameter.name, parameter.value});
}

}  // namespace heed::nn::detail
