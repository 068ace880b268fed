// Mixtral (Jiang et al. 2024): Mistral's blocks, whose MLPs are mixtures of experts.
//
// families/gated_decoder.hpp has the block, layers/mlp.hpp the mixture.
#include "model/families/gated_decoder.hpp"

namespace heed::detail {
namespace {

std::unique_ptr<const Family> make_mixtral(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  GatedDecoderRules rules = read_gated_decoder(config, info);
  rules.rope = rules.window_rope = whole_rope(config, info, rope_rules(config));
  rules.reaches = layer_reaches(config, info.layers, sliding_window(config));
  rules.mixture.experts = expert_count(config, "num_local_experts");
  rules.mixture.chosen = chosen_experts(config, rules.mixture.experts);
  rules.mixture.inner = rules.inner;
  rules.mixture.block = "block_sparse_moe.";
  rules.mixture.gate = "w1";
  rules.mixture.up = "w3";
  rules.mixture.down = "w2";
  return make_gated_decoder(config, weights, info, std::move(rules));
}

}  // namespace

const FamilyEntry kMixtral = {
    .model_type = "mixtral",
    .keys = {.shared = &kDecoderKeys,
             .read = R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
                 "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
                 "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "sliding_window": null,
                 "num_local_experts": 8, "num_experts_per_tok": 2, "rope_theta": 1000000.0})",
             .unused = "output_router_logits router_aux_loss_coef router_jitter_noise",
             .renamed = R"({"num_experts": "num_local_experts"})"},
    .make = make_mixtral};

}  // namespace heed::detail
