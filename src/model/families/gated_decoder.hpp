// What Llama, Mistral, Qwen and Gemma have in common: RMS norms, rotary positions, grouped keys and values,
// gated MLPs.
//
//   x = s E[id]
//   q, k, v = W_Q n, W_K n, W_V n with n = norm(x);   q, k = rope(norm(q)), rope(norm(k))
//   x = x + norm(attention(q, k, v) W_O)
//   x = x + norm(W_down (act(W_gate m) * W_up m)) with m = norm(x)
//   logits = cap tanh(norm(x) W_U^T / cap)
//
// Which of the norms, biases, caps and scales a family has is what its own file says.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "model/families/family.hpp"
#include "model/layers/activations.hpp"
#include "model/layers/rope.hpp"

namespace heed::detail {

struct GatedDecoderRules {
  std::int64_t inner = 0;  ///< width of the MLP's hidden layer
  double epsilon = 1e-6;   ///< of all norms
  Activation activation = Activation::silu;
  bool query_key_value_bias = false, output_bias = false, mlp_bias = false;
  bool head_norms = false;      ///< of queries and keys, head by head
  bool sandwich_norms = false;  ///< also behind attention and MLP, before they are added
  float norm_offset = 0;        ///< added to the weights of norms
  float embedding_scale = 1;
  double scale = 0;                   ///< of scores
  double softcap = 0;                 ///< of scores; 0: none
  double logits_cap = 0;              ///< 0: none
  std::vector<std::int64_t> reaches;  ///< how many keys before it a token of each layer sees; -1: all
  Rope rope;                          ///< of layers that see all
  Rope window_rope;                   ///< of the others
};

/// num_hidden_layers, num_attention_heads, … into `info`, and the rules that all families have as Llama names
/// them: intermediate_size, rms_norm_eps, rope, scale 1 / sqrt(head_dim), no windows. `activation` is a key.
[[nodiscard]] GatedDecoderRules read_gated_decoder(const ModelConfig& config, ModelInfo& info,
                                                   const char* activation = "hidden_act");

/// Of whole heads: rules that rotate a part of each are refused.
[[nodiscard]] Rope whole_rope(const ModelConfig& config, const ModelInfo& info, const RopeRules& rules);

/// The keys of a window, where sliding_window is a number.
[[nodiscard]] std::optional<std::int64_t> sliding_window(const ModelConfig& config);

/// How far tokens of each layer see. A layer slides where layer_types says so; without that list, where
/// slides(layer) says so. Then tokens see `window` keys back. In a causal model the token itself is one of
/// them, in others it comes on top (transformers).
[[nodiscard]] std::vector<std::int64_t> layer_reaches(const ModelConfig& config, std::int64_t layers,
                                                      std::optional<std::int64_t> window,
                                                      const std::function<bool(std::int64_t)>& slides);

/// Takes the weights and fills in whether the model predicts.
[[nodiscard]] std::unique_ptr<const Family> make_gated_decoder(const ModelConfig& config, Weights& weights,
                                                               ModelInfo& info, GatedDecoderRules rules);

}  // namespace heed::detail
