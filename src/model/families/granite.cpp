// Granite (IBM 2024): Llama's blocks with four factors, which muP (Yang et al. 2022) sets.
//
//   x = embedding_multiplier E[id],   scores = attention_multiplier q k
//   x = x + residual_multiplier attention(…) W_O,   x = x + residual_multiplier mlp(norm(x))
//   logits = norm(x) W_U^T / logits_scaling
//
// families/gated_decoder.hpp has the block.
#include "model/families/gated_decoder.hpp"

namespace heed::detail {
namespace {

std::unique_ptr<const Family> make_granite(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  GatedDecoderRules rules = read_gated_decoder(config, info);
  rules.rope = whole_rope(config, info, rope_rules(config));
  rules.query_key_value_bias = rules.output_bias = config.flag("attention_bias");
  rules.mlp_bias = config.flag("mlp_bias");
  rules.embedding_scale = static_cast<float>(config.real("embedding_multiplier"));
  rules.residual_scale = static_cast<float>(config.real("residual_multiplier"));
  rules.scale = config.real("attention_multiplier");
  const double divisor = config.real("logits_scaling");
  if (divisor == 0) config.fail("has logits_scaling 0; a number other than 0 is expected");
  rules.logits_scale = static_cast<float>(1 / divisor);
  return make_gated_decoder(config, weights, info, std::move(rules));
}

}  // namespace

const FamilyEntry kGranite = {
    .model_type = "granite",
    .keys = {.shared = &kDecoderKeys,
             .read = R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
                 "num_hidden_layers": 32, "num_attention_heads": 32, "max_position_embeddings": 2048,
                 "rms_norm_eps": 1e-6, "attention_bias": false, "mlp_bias": false,
                 "embedding_multiplier": 1.0, "logits_scaling": 1.0, "residual_multiplier": 1.0,
                 "attention_multiplier": 1.0})"},
    .make = make_granite};

}  // namespace heed::detail
