// Qwen 2 and 2.5 (Yang et al. 2024): Llama's blocks with biases of queries, keys and values. Qwen 3 (Yang et
// al. 2025): norms of each head's queries and keys instead; its mixtures of experts replace MLPs.
//
//   q, k, v = W_Q n + b_Q, W_K n + b_K, W_V n + b_V            Qwen 2
//   q, k = rope(norm(W_Q n)), rope(norm(W_K n))                Qwen 3
//
// families/gated_decoder.hpp has the block.
#include <algorithm>

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

// Every decoder_sparse_step-th layer has a mixture, except those in mlp_only_layers.
std::vector<bool> layers_with_experts(const ModelConfig& config, std::int64_t layers) {
  const std::int64_t step = config.integer("decoder_sparse_step", 1, kMaxLayers);
  const std::vector<std::int64_t> without = config.integers("mlp_only_layers");
  std::vector<bool> made;
  for (std::int64_t n = 0; n < layers; ++n)
    made.push_back((n + 1) % step == 0 && std::ranges::find(without, n) == without.end());
  return made;
}

std::unique_ptr<const Family> make_qwen3_moe(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  GatedDecoderRules rules = read_gated_decoder(config, info);
  rules.rope = rules.window_rope = whole_rope(config, info, rope_rules(config));
  const auto window = config.flag("use_sliding_window") ? sliding_window(config) : std::nullopt;
  rules.reaches = layer_reaches(config, info.layers, window);
  rules.query_key_value_bias = rules.output_bias = config.flag("attention_bias");
  rules.head_norms = true;
  rules.mixture.experts = expert_count(config, "num_experts");
  rules.mixture.chosen = chosen_experts(config, rules.mixture.experts);
  rules.mixture.inner = config.integer("moe_intermediate_size", 1, kMaxWidth);
  rules.mixture.over_chosen = config.flag("norm_topk_prob");
  rules.mixture.layers = layers_with_experts(config, info.layers);
  return make_gated_decoder(config, weights, info, std::move(rules));
}

}  // namespace

const FamilyEntry kQwen2 = {
    .model_type = "qwen2",
    .keys = {.shared = &kDecoderKeys,
             .read = R"({"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
                 "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
                 "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "use_sliding_window": false,
                 "sliding_window": 4096, "max_window_layers": 28, "layer_types": null})"},
    .make = make_qwen2};

const FamilyEntry kQwen3 = {
    .model_type = "qwen3",
    .keys = {.shared = &kDecoderKeys,
             .read = R"({"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
                 "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
                 "head_dim": 128, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
                 "attention_bias": false, "use_sliding_window": false, "sliding_window": 4096,
                 "max_window_layers": 28, "layer_types": null})"},
    .make = make_qwen3};

const FamilyEntry kQwen3Moe = {
    .model_type = "qwen3_moe",
    .keys = {.shared = &kDecoderKeys,
             .read = R"({"vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 6144,
                 "num_hidden_layers": 24, "num_attention_heads": 32, "num_key_value_heads": 4,
                 "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "attention_bias": false,
                 "use_sliding_window": false, "sliding_window": 4096, "decoder_sparse_step": 1,
                 "moe_intermediate_size": 768, "num_experts_per_tok": 8, "num_experts": 128,
                 "norm_topk_prob": false, "mlp_only_layers": null})",
             .unused = "output_router_logits router_aux_loss_coef max_window_layers",
             .renamed = R"({"num_local_experts": "num_experts"})"},
    .make = make_qwen3_moe};

}  // namespace heed::detail
