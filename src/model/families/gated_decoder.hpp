// The common decoder of Llama, Mistral, Mixtral, Qwen, Gemma, OLMo 2, Phi-3, SmolLM3, Granite, StableLM and
// Starcoder 2: norms before (or after) attention and MLP, rotary positions, grouped keys and values, MLPs
// that are mostly gated.
//
//   x = s E[id]
//   q, k, v = W_Q n, W_K n, W_V n with n = norm(x);   q, k = rope(norm(q)), rope(norm(k))
//   x = x + norm(attention(q, k, v) W_O)
//   x = x + norm(W_down (act(W_gate m) * W_up m)) with m = norm(x)
//   logits = cap tanh(norm(x) W_U^T / cap)
//
// The file of each family says which of the norms, biases, caps and scales it has, and whether the MLP is a
// mixture of experts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "model/families/family.hpp"
#include "model/layers/activations.hpp"
#include "model/layers/mlp.hpp"
#include "model/layers/rope.hpp"

namespace heed::detail {

/// The mixtures of experts that replace MLPs.
struct MixtureRules {
  std::int64_t experts = 0;  ///< 0: none
  std::int64_t chosen = 1;   ///< experts of a token
  std::int64_t inner = 0;    ///< width of an expert's hidden layer
  bool over_chosen = true;   ///< whether the weights of the chosen experts sum to 1
  std::vector<bool> layers;  ///< whether a layer has one; empty: all have
  const char* block = "mlp.";
  const char* router = "gate";
  bool bias = false;  ///< of the router and of experts
  const char *gate = "gate_proj", *up = "up_proj", *down = "down_proj";
  std::optional<ClampedGate> clamped{};
  /// Reads experts that are not tensors of their own (gpt-oss); nothing: they are.
  std::function<std::vector<MlpWeights>(Weights& weights, const std::string& at)> read_experts{};
};

struct GatedDecoderRules {
  std::int64_t inner = 0;    ///< width of the MLP's hidden layer
  double epsilon = 1e-6;     ///< for all norms
  bool layer_norms = false;  ///< LayerNorm instead of RMSNorm
  Activation activation = Activation::silu;
  bool gated = true;
  const char *up = "up_proj", *down = "down_proj";  ///< names of the MLP's matrices
  MixtureRules mixture;
  bool query_key_value_bias = false, output_bias = false, mlp_bias = false;
  bool sinks = false;           ///< a learned logit of each head, in the denominator alone
  bool fused = false;           ///< q, k, v are one matrix, and so are gate and up
  bool head_norms = false;      ///< norms on queries and keys, head by head
  bool whole_norms = false;     ///< the same over all heads at once
  bool sandwich_norms = false;  ///< also norms after attention and MLP, before they are added to the stream
  bool post_norms = false;      ///< only these
  bool parallel = false;        ///< attention and MLP read the same normalised stream
  float norm_offset = 0;        ///< added to the weights of norms
  float embedding_scale = 1;
  float residual_scale = 1;  ///< for what attention and MLP add to the stream
  float logits_scale = 1;
  double scale = 0;                   ///< for scores
  double softcap = 0;                 ///< for scores; 0: none
  double logits_cap = 0;              ///< 0: none
  std::vector<std::int64_t> reaches;  ///< earlier keys that a token of each layer sees; -1: all
  Rope rope;                          ///< for layers that see all keys
  Rope window_rope;                   ///< for the other layers
  std::vector<bool> rotates;          ///< whether a layer has rotary positions; empty: all have
};

extern const SharedKeys kDecoderKeys;

/// Reads num_hidden_layers, num_attention_heads, … into `info`, and the rules that all families name as Llama
/// does: intermediate_size, the epsilon, rope, scale 1 / sqrt(head_dim), no windows. `activation` and
/// `epsilon` are keys.
[[nodiscard]] GatedDecoderRules read_gated_decoder(const ModelConfig& config, ModelInfo& info,
                                                   const char* activation = "hidden_act",
                                                   const char* epsilon = "rms_norm_eps");

/// The rotary embedding of whole heads. Rules that rotate only a part of each head are refused.
[[nodiscard]] Rope whole_rope(const ModelConfig& config, const ModelInfo& info, RopeRules rules);

/// Reads num_experts_per_tok, which is at most `experts`.
[[nodiscard]] std::int64_t chosen_experts(const ModelConfig& config, std::int64_t experts);
/// The number of experts, at most kMaxExperts.
[[nodiscard]] std::int64_t expert_count(const ModelConfig& config, const char* name);

/// The window size in keys, if sliding_window is a number.
[[nodiscard]] std::optional<std::int64_t> sliding_window(const ModelConfig& config);

/// The reach of tokens in each layer. A layer uses the window if layer_types says so; without that list, if
/// slides(layer) is true. Tokens then see `window` keys back. In a causal model these include the token
/// itself; in others it is additional (as in transformers).
[[nodiscard]] std::vector<std::int64_t> layer_reaches(const ModelConfig& config, std::int64_t layers,
                                                      std::optional<std::int64_t> window,
                                                      const std::function<bool(std::int64_t)>& slides);
/// The same where all layers use the window, if there is one.
[[nodiscard]] std::vector<std::int64_t> layer_reaches(const ModelConfig& config, std::int64_t layers,
                                                      std::optional<std::int64_t> window);

/// Reads the weights, and sets in `info` whether the model predicts.
[[nodiscard]] std::unique_ptr<const Family> make_gated_decoder(const ModelConfig& config, Weights& weights,
                                                               ModelInfo& info, GatedDecoderRules rules);

}  // namespace heed::detail
