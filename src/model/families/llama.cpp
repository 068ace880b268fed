// Llama 2 and 3 (Touvron et al. 2023; Grattafiori et al. 2024) and models with their structure (TinyLlama,
// SmolLM); Mistral (Jiang et al. 2023), whose tokens see a window.
//
//   x = E[id]
//   x = x + attention(rope(q), rope(k), v) W_O,   x = x + W_down (silu(W_gate n) * W_up n)
//   logits = norm(x) W_U^T
//
// families/gated_decoder.hpp has the block.
#include "model/families/gated_decoder.hpp"

namespace heed::detail {
namespace {

std::unique_ptr<const Family> make_llama(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  GatedDecoderRules rules = read_gated_decoder(config, info);
  rules.rope = whole_rope(config, info, rope_rules(config));
  rules.query_key_value_bias = rules.output_bias = config.flag("attention_bias");
  rules.mlp_bias = config.flag("mlp_bias");
  return make_gated_decoder(config, weights, info, std::move(rules));
}

std::unique_ptr<const Family> make_mistral(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  GatedDecoderRules rules = read_gated_decoder(config, info);
  rules.rope = rules.window_rope = whole_rope(config, info, rope_rules(config));
  rules.reaches = layer_reaches(config, info.layers, sliding_window(config));
  return make_gated_decoder(config, weights, info, std::move(rules));
}

}  // namespace

// pretraining_tp split the products into parts; the sum is the same.
const FamilyEntry kLlama = {
    .model_type = "llama",
    .keys = {.shared = &kDecoderKeys,
             .read = R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
                 "num_hidden_layers": 32, "num_attention_heads": 32, "max_position_embeddings": 2048,
                 "rms_norm_eps": 1e-6, "attention_bias": false, "mlp_bias": false})",
             .unused = "pretraining_tp is_llama_config rope_interleaved"},
    .make = make_llama};

const FamilyEntry kMistral = {
    .model_type = "mistral",
    .keys = {.shared = &kDecoderKeys,
             .read = R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
                 "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
                 "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "sliding_window": 4096})"},
    .make = make_mistral};

}  // namespace heed::detail
