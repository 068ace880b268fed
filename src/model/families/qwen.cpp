// Qwen 2 and 2.5 (Yang et al. 2024): Llama's blocks with biases of queries, keys and values. Qwen 3 (Yang et
// al. 2025): norms of each head's queries and keys instead.
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
  const auto window = config.flag("use_sliding_window") ? sliding_window(config) : std::nullopt;
  const std::int64_t first = config.integer("max_window_layers", 0, kMaxContext);
  rules.reaches = layer_reaches(config, info.layers, window,
                                [&](std::int64_t layer) { return window && layer >= first; });
  return rules;
}

std::unique_ptr<const Family> make_qwen2(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  GatedDecoderRules rules = read_qwen(config, info);
  rules.query_key_value_bias = true;
  return make_gated_decoder(config, weights, info, std::move(rules));
}

std::unique_ptr<const Family> make_qwen3(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  GatedDecoderRules rules = read_qwen(config, info);
  rules.query_key_value_bias = rules.output_bias = config.flag("attention_bias");
  rules.head_norms = true;
  return make_gated_decoder(config, weights, info, std::move(rules));
}

}  // namespace

const FamilyEntry kQwen2 = {
    .model_type = "qwen2",
    .keys = {.read = R"({"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
                 "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
                 "head_dim": null, "hidden_act": "silu", "max_position_embeddings": 32768,
                 "rms_norm_eps": 1e-6, "use_sliding_window": false, "sliding_window": 4096,
                 "max_window_layers": 28, "layer_types": null, "tie_word_embeddings": false,
                 "is_causal": true, "rope_parameters": null, "rope_scaling": null, "rope_theta": 10000.0,
                 "original_max_position_embeddings": null})",
             .only = R"({"partial_rotary_factor": 1})"},
    .make = make_qwen2};

const FamilyEntry kQwen3 = {
    .model_type = "qwen3",
    .keys = {.read = R"({"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
                 "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
                 "head_dim": 128, "hidden_act": "silu", "max_position_embeddings": 32768,
                 "rms_norm_eps": 1e-6, "attention_bias": false, "use_sliding_window": false,
                 "sliding_window": 4096, "max_window_layers": 28, "layer_types": null,
                 "tie_word_embeddings": false, "is_causal": true, "rope_parameters": null,
                 "rope_scaling": null, "rope_theta": 10000.0, "original_max_position_embeddings": null})",
             .only = R"({"partial_rotary_factor": 1})"},
    .make = make_qwen3};

}  // namespace heed::detail
