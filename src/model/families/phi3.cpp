// Phi-3 (Abdin et al. 2024): Llama's blocks, whose queries, keys and values are one matrix, as are gate and
// up.
//
// Tokens see a window if sliding_window is a number. families/gated_decoder.hpp has the block.
#include "model/families/gated_decoder.hpp"

namespace heed::detail {
namespace {

std::unique_ptr<const Family> make_phi3(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  GatedDecoderRules rules = read_gated_decoder(config, info);
  rules.fused = true;
  const RopeRules rope = rope_rules(config, "rope_theta", "partial_rotary_factor");
  if (rope.kind != RopeKind::plain && rope.kind != RopeKind::longrope)
    config.fail(
        "has rope_parameters of another rope_type than default and longrope, which heed's phi3 expects");
  rules.rope = rules.window_rope = Rope(config, rope, rotated_dims(config, rope, info.head_dim));
  rules.reaches = layer_reaches(config, info.layers, sliding_window(config));
  return make_gated_decoder(config, weights, info, std::move(rules));
}

}  // namespace

const FamilyEntry kPhi3 = {
    .model_type = "phi3",
    .keys = {.shared = &kDecoderKeys,
             .read = R"({"vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192,
                 "num_hidden_layers": 32, "num_attention_heads": 32, "max_position_embeddings": 4096,
                 "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
                 "sliding_window": null, "partial_rotary_factor": 1.0})"},
    .make = make_phi3};

}  // namespace heed::detail
