// StableLM 2 (Bellagente et al. 2024): Llama's blocks with LayerNorm, and rotary positions on a part of each
// head.
//
//   x = x + attention(norm_1(x)) W_O,   x = x + mlp(norm_2(x))
//   x = x + attention(n) W_O + mlp(n) with n = norm_1(x)           parallel residual
//
// families/gated_decoder.hpp has the block.
#include "model/families/gated_decoder.hpp"

namespace heed::detail {
namespace {

std::unique_ptr<const Family> make_stablelm(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  GatedDecoderRules rules = read_gated_decoder(config, info, "hidden_act", "layer_norm_eps");
  require_number(config, "head_dim", static_cast<double>(info.model_dim / info.heads));
  rules.layer_norms = true;
  rules.query_key_value_bias = config.flag("use_qkv_bias");
  rules.parallel = config.flag("use_parallel_residual");
  const RopeRules rope = rope_rules(config, "rope_theta", "partial_rotary_factor");
  rules.rope = Rope(config, rope, rotated_dims(config, rope, info.head_dim));
  return make_gated_decoder(config, weights, info, std::move(rules));
}

}  // namespace

const FamilyEntry kStableLm = {
    .model_type = "stablelm",
    .keys = {.shared = &kDecoderKeys,
             .read = R"({"vocab_size": 50304, "hidden_size": 2560, "intermediate_size": 6912,
                 "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
                 "max_position_embeddings": 4096, "layer_norm_eps": 1e-5, "use_qkv_bias": false,
                 "use_parallel_residual": false, "partial_rotary_factor": 0.25})",
             .only = R"({"qk_layernorm": false})"},
    .make = make_stablelm};

}  // namespace heed::detail
