// Gemma (Mesnard et al. 2024): Llama's blocks with norms of weights 1 + w and scaled embeddings. Gemma 2
// (Riviere et al. 2024) and the text part of Gemma 3 (Kamath et al. 2025): norms with weights 1 + w, also
// after attention and MLP; layers with a window alternate with layers that see all.
//
//   x = sqrt(D) E[id]
//   x = x + norm(attention(norm(x)) W_O),   x = x + norm(mlp(norm(x)))
//   scores: <q, k> / sqrt(query_pre_attn_scalar), Gemma 2: then c tanh(s / c)
//   logits = c' tanh(norm(x) E^T / c')
//
// Gemma 3 has norms of each head's queries and keys instead of the cap on scores, and a slower rotation in
// layers that see all. families/gated_decoder.hpp has the block.
#include <cmath>

#include "model/families/gated_decoder.hpp"

namespace heed::detail {
namespace {

double cap_of(const ModelConfig& config, const char* name) {
  return config.has(name) ? config.positive(name) : 0;
}

std::unique_ptr<const Family> make_gemma(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  GatedDecoderRules rules = read_gated_decoder(config, info);
  rules.query_key_value_bias = rules.output_bias = config.flag("attention_bias");
  if (rules.activation == Activation::gelu) rules.activation = Activation::gelu_tanh;  // old files mean this
  rules.norm_offset = 1;
  rules.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(info.model_dim)));
  rules.rope = whole_rope(config, info, rope_rules(config));
  return make_gated_decoder(config, weights, info, std::move(rules));
}

GatedDecoderRules read_gemma(const ModelConfig& config, ModelInfo& info) {
  GatedDecoderRules rules = read_gated_decoder(config, info, "hidden_activation");
  rules.query_key_value_bias = rules.output_bias = config.flag("attention_bias");
  rules.sandwich_norms = true;
  rules.norm_offset = 1;
  rules.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(info.model_dim)));
  rules.logits_cap = cap_of(config, "final_logit_softcapping");
  rules.scale = 1 / std::sqrt(static_cast<double>(config.integer("query_pre_attn_scalar", 1, kMaxWidth)));
  return rules;
}

// Gemma 3: rope_parameters has an object for each type of layer. Older files have rope_theta and rope_scaling
// for layers that see all, and rope_local_base_freq for the others.
void read_ropes(const ModelConfig& config, const ModelInfo& info, GatedDecoderRules& rules) {
  rules.rope = whole_rope(config, info, rope_rules_of_type(config, "full_attention", "rope_theta", true));
  rules.window_rope = whole_rope(
      config, info, rope_rules_of_type(config, "sliding_attention", "rope_local_base_freq", false));
}

std::unique_ptr<const Family> make_gemma2(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  GatedDecoderRules rules = read_gemma(config, info);
  rules.softcap = cap_of(config, "attn_logit_softcapping");
  rules.rope = rules.window_rope = whole_rope(config, info, rope_rules(config));
  rules.reaches = layer_reaches(config, info.layers, sliding_window(config),
                                [](std::int64_t layer) { return layer % 2 == 0; });
  return make_gated_decoder(config, weights, info, std::move(rules));
}

std::unique_ptr<const Family> make_gemma3(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  GatedDecoderRules rules = read_gemma(config, info);
  rules.head_norms = true;
  read_ropes(config, info, rules);
  const std::int64_t pattern =
      config.has("layer_types") ? 1 : config.integer("sliding_window_pattern", 1, kMaxLayers);
  std::optional<std::int64_t> window = sliding_window(config);
  // EmbeddingGemma: the window is split between both sides of a token.
  if (config.has("use_bidirectional_attention") && config.flag("use_bidirectional_attention")) {
    info.causal = false;
    if (window) *window = *window / 2 + 1;
  }
  rules.reaches = layer_reaches(config, info.layers, window,
                                [&](std::int64_t layer) { return (layer + 1) % pattern != 0; });
  return make_gated_decoder(config, weights, info, std::move(rules));
}

}  // namespace

const FamilyEntry kGemma = {
    .model_type = "gemma",
    .keys = {.shared = &kDecoderKeys,
             .read = R"({"vocab_size": 256000, "hidden_size": 3072, "intermediate_size": 24576,
                 "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 16,
                 "head_dim": 256, "hidden_act": "gelu_pytorch_tanh", "max_position_embeddings": 8192,
                 "rms_norm_eps": 1e-6, "attention_bias": false, "tie_word_embeddings": true})",
             .only = R"({"use_bidirectional_attention": false})",
             .unused = "hidden_activation"},
    .make = make_gemma};

// Old files have hidden_act beside hidden_activation, and sliding_window_size beside sliding_window.
const FamilyEntry kGemma2 = {
    .model_type = "gemma2",
    .keys = {.read = R"({"vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216,
                 "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
                 "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 8192,
                 "rms_norm_eps": 1e-6, "attention_bias": false, "query_pre_attn_scalar": 256,
                 "sliding_window": 4096, "layer_types": null, "attn_logit_softcapping": 50.0,
                 "final_logit_softcapping": 30.0, "tie_word_embeddings": true, "is_causal": true,
                 "rope_parameters": null, "rope_scaling": null, "rope_theta": 10000.0,
                 "original_max_position_embeddings": null})",
             .only = R"({"partial_rotary_factor": 1, "use_bidirectional_attention": false})",
             .unused = "hidden_act sliding_window_size"},
    .make = make_gemma2};

const FamilyEntry kGemma3 = {
    .model_type = "gemma3_text",
    .keys = {.read = R"({"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216,
                 "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
                 "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 131072,
                 "rms_norm_eps": 1e-6, "attention_bias": false, "query_pre_attn_scalar": 256,
                 "sliding_window": 4096, "sliding_window_pattern": 6, "layer_types": null,
                 "use_bidirectional_attention": false, "final_logit_softcapping": null,
                 "tie_word_embeddings": true, "is_causal": true, "rope_parameters": null,
                 "rope_scaling": null, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0})",
             .only = R"({"partial_rotary_factor": 1, "attn_logit_softcapping": null,
                 "original_max_position_embeddings": null})",
             .unused = "hidden_act _sliding_window_pattern"},
    .make = make_gemma3};

}  // namespace heed::detail
