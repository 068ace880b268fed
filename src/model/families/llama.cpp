// Llama 2 and 3 (Touvron et al. 2023; Grattafiori et al. 2024), and what is built like them (TinyLlama,
// SmolLM); Mistral (Jiang et al. 2023), whose tokens see a window.
//
//   x = E[id]
//   x = x + attention(rope(q), rope(k), v) W_O,   x = x + W_down (silu(W_gate n) * W_up n)
//   logits = norm(x) W_U^T
//
// families/gated_decoder.hpp has the block.
#include "model/families/gated_decoder.hpp"

namespace heed::detail {

std::unique_ptr<const Family> make_llama(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  GatedDecoderRules rules = read_gated_decoder(config, info);
  rules.rope = whole_rope(config, info, rope_rules(config));
  rules.query_key_value_bias = rules.output_bias = config.flag("attention_bias", false);
  rules.mlp_bias = config.flag("mlp_bias", false);
  return make_gated_decoder(config, weights, info, std::move(rules));
}

std::unique_ptr<const Family> make_mistral(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  GatedDecoderRules rules = read_gated_decoder(config, info);
  rules.rope = rules.window_rope = whole_rope(config, info, rope_rules(config));
  if (config.has("layer_types")) config.fail("has layer_types, which heed's mistral lacks");
  const bool slides = config.has("sliding_window");
  rules.windows = layer_windows(config, info.layers, [&](std::int64_t /*layer*/) { return slides; });
  return make_gated_decoder(config, weights, info, std::move(rules));
}

}  // namespace heed::detail
