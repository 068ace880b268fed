// Gemma 2 (Riviere et al. 2024) and the text part of Gemma 3 (Kamath et al. 2025): norms with weights 1 + w,
// also behind attention and MLP; layers that see a window between layers that see all.
//
//   x = sqrt(D) E[id]
//   x = x + norm(attention(norm(x)) W_O),   x = x + norm(mlp(norm(x)))
//   scores: <q, k> / sqrt(query_pre_attn_scalar), Gemma 2: then c tanh(s / c)
//   logits = c' tanh(norm(x) E^T / c')
//
// Gemma 3 has norms of each head's queries and keys in place of the scores' cap, and a slower rotation where
// layers see all. families/gated_decoder.hpp has the block.
#include <cmath>

#include "model/families/gated_decoder.hpp"

namespace heed::detail {
namespace {

double cap_of(const ModelConfig& config, const char* name) {
  if (!config.has(name)) return 0;
  const double cap = config.real(name);
  if (cap <= 0) config.fail("has " + std::string(name) + " that is not above 0");
  return cap;
}

GatedDecoderRules read_gemma(const ModelConfig& config, ModelInfo& info) {
  GatedDecoderRules rules = read_gated_decoder(config, info);
  if (config.flag("use_bidirectional_attention", false))
    config.fail("has use_bidirectional_attention, which heed's " + config.text("model_type") + " lacks");
  rules.activation = activation_of(config, "hidden_activation", "gelu_pytorch_tanh");
  rules.query_key_value_bias = rules.output_bias = config.flag("attention_bias", false);
  rules.sandwich_norms = true;
  rules.norm_offset = 1;
  rules.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(info.model_dim)));
  rules.tied = true;
  rules.logits_cap = cap_of(config, "final_logit_softcapping");
  rules.scale = 1 / std::sqrt(static_cast<double>(config.integer("query_pre_attn_scalar", 1, kMostWidth)));
  return rules;
}

// Of Gemma 3: rope_parameters has an object for each type of layer; older files have rope_theta and
// rope_scaling for layers that see all, and rope_local_base_freq for the others.
void read_ropes(const ModelConfig& config, const ModelInfo& info, GatedDecoderRules& rules) {
  RopeRules full, window;
  full.base = 1e6;
  window.base = config.real("rope_local_base_freq", 1e4);
  if (window.base <= 0) config.fail("has rope_local_base_freq that is not above 0");
  if (const auto parameters = config.object("rope_parameters")) {
    const auto of_full = parameters->object("full_attention");
    const auto of_window = parameters->object("sliding_attention");
    if (!of_full || !of_window || config.has("rope_scaling"))
      config.fail("has rope_parameters other than full_attention and sliding_attention");
    full = rope_rules_in(config, *of_full, full);
    window = rope_rules_in(config, *of_window, window);
  } else {
    full = rope_rules(config, full);
  }
  rules.rope = whole_rope(config, info, full);
  rules.window_rope = whole_rope(config, info, window);
}

}  // namespace

std::unique_ptr<const Family> make_gemma2(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  GatedDecoderRules rules = read_gemma(config, info);
  rules.softcap = cap_of(config, "attn_logit_softcapping");
  rules.rope = rules.window_rope = whole_rope(config, info, rope_rules(config));
  rules.windows = layer_windows(config, info.layers, [](std::int64_t layer) { return layer % 2 == 0; });
  return make_gated_decoder(config, weights, info, std::move(rules));
}

std::unique_ptr<const Family> make_gemma3(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  GatedDecoderRules rules = read_gemma(config, info);
  if (config.has("attn_logit_softcapping"))
    config.fail("has attn_logit_softcapping, which heed's gemma3_text lacks");
  rules.head_norms = true;
  read_ropes(config, info, rules);
  const std::int64_t pattern = config.integer("sliding_window_pattern", 1, kMostLayers, 6);
  rules.windows =
      layer_windows(config, info.layers, [&](std::int64_t layer) { return (layer + 1) % pattern != 0; });
  return make_gated_decoder(config, weights, info, std::move(rules));
}

}  // namespace heed::detail
