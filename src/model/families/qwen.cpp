// Qwen 2 and 2.5 (Yang et al. 2024): Llama's blocks with biases of queries, keys and values. Qwen 3 (Yang et
// al. 2025): norms of each head's queries and keys in their place.
//
//   q, k, v = W_Q n + b_Q, W_K n + b_K, W_V n + b_V            Qwen 2
//   q, k = rope(norm(W_Q n)), rope(norm(W_K n))                Qwen 3
//
// families/gated_decoder.hpp has the block.
#include "model/families/gated_decoder.hpp"

namespace heed::detail {
namespace {

GatedDecoderRules read_qwen(const ModelConfig& config, ModelInfo& info) {
  GatedDecoderRules rules = read_gated_decoder(config, info);
  rules.rope = rules.window_rope = whole_rope(config, info, rope_rules(config));
  const bool slides = config.flag("use_sliding_window", false) && config.has("sliding_window");
  const std::int64_t first = config.integer("max_window_layers", 0, kMostContext, 28);
  rules.windows =
      layer_windows(config, info.layers, [&](std::int64_t layer) { return slides && layer >= first; });
  return rules;
}

}  // namespace

std::unique_ptr<const Family> make_qwen2(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  GatedDecoderRules rules = read_qwen(config, info);
  rules.query_key_value_bias = true;
  return make_gated_decoder(config, weights, info, std::move(rules));
}

std::unique_ptr<const Family> make_qwen3(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  GatedDecoderRules rules = read_qwen(config, info);
  rules.query_key_value_bias = rules.output_bias = config.flag("attention_bias", false);
  rules.head_norms = true;
  return make_gated_decoder(config, weights, info, std::move(rules));
}

}  // namespace heed::detail
