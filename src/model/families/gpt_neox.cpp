// GPT-NeoX (Black et al. 2022), Pythia's family: rotary positions on a part of each head, one product for
// queries, keys and values, ordered by head, and attention and MLP that read the same stream.
//
//   x = E[id]
//   x = x + attention(norm_1(x)) W_O + mlp(norm_2(x))                              parallel residual
//   y = x + attention(norm_1(x)) W_O,   x = y + mlp(norm_2(y))                     otherwise
//   logits = norm(x) W_U^T
//
// families/pre_norm.hpp has the block.
#include <string>
#include <utility>

#include "model/families/pre_norm.hpp"

namespace heed::detail {
namespace {

Rope read_neox_rope(const ModelConfig& config, std::int64_t head_dim) {
  const RopeRules rules = rope_rules(config, "rotary_emb_base", "rotary_pct");
  // transformers ignores the first two here, and uses the third only to rotate.
  require_number(config, "rope_theta", rules.base);
  require_number(config, "partial_rotary_factor", rules.share);
  require_number(config, "head_dim", static_cast<double>(head_dim));
  return {config, rules, rotated_dims(config, rules, head_dim)};
}

std::unique_ptr<const Family> make_gpt_neox(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  read_sizes(config, info);
  info.context = config.integer("max_position_embeddings", 1, kMaxContext);
  info.causal = is_causal(config);
  PreNormWeights made;
  made.by_head = true;
  made.parallel = config.flag("use_parallel_residual");
  made.rope = read_neox_rope(config, info.head_dim);
  const std::int64_t dim = info.model_dim, inner = config.integer("intermediate_size", 1, kMaxWidth);
  const double epsilon = epsilon_of(config, "layer_norm_eps");
  const Activation activation = activation_of(config, "hidden_act");
  const bool bias = config.flag("attention_bias");
  const bool whole = weights.contains("gpt_neox.embed_in.weight");
  const std::string root = whole ? "gpt_neox." : "";
  made.tokens = weights.matrix(root + "embed_in.weight", info.vocabulary, dim);
  for (std::int64_t n = 0; n < info.layers; ++n) {
    const std::string at = root + "layers." + std::to_string(n) + ".";
    PreNormBlock& block = made.blocks.emplace_back();
    block.attention_norm = layer_norm_weights(weights, at + "input_layernorm", dim, epsilon);
    block.query_key_value = linear_weights(weights, at + "attention.query_key_value", 3 * dim, dim, bias);
    block.output = linear_weights(weights, at + "attention.dense", dim, dim, bias);
    block.mlp_norm = layer_norm_weights(weights, at + "post_attention_layernorm", dim, epsilon);
    block.feed_forward.up = linear_weights(weights, at + "mlp.dense_h_to_4h", inner, dim, true);
    block.feed_forward.down = linear_weights(weights, at + "mlp.dense_4h_to_h", dim, inner, true);
    block.feed_forward.activation = activation;
    // Old files store masks and frequencies.
    for (const char* kept : {"bias", "masked_bias", "rotary_emb.inv_freq"})
      weights.leave(at + "attention." + kept);
  }
  made.last_norm = layer_norm_weights(weights, root + "final_layer_norm", dim, epsilon);
  info.predicts = whole || config.flag("tie_word_embeddings");
  if (info.predicts)
    made.unembedding.weight = unembedding_weight(config, weights, "embed_out.weight", made.tokens);
  return make_pre_norm(std::move(made), info);
}

}  // namespace

// rope_parameters renames rotary_emb_base to rope_theta, and rotary_pct to partial_rotary_factor.
const FamilyEntry kGptNeox = {
    .model_type = "gpt_neox",
    .keys = {.read = R"({"vocab_size": 50432, "hidden_size": 6144, "num_hidden_layers": 44,
                 "num_attention_heads": 64, "intermediate_size": 24576, "max_position_embeddings": 2048,
                 "hidden_act": "gelu", "layer_norm_eps": 1e-5, "attention_bias": true,
                 "use_parallel_residual": true, "tie_word_embeddings": false, "is_causal": true,
                 "rope_parameters": null, "rope_scaling": null, "rotary_emb_base": 10000.0, "rotary_pct": 0.25,
                 "original_max_position_embeddings": null, "rope_theta": null,
                 "partial_rotary_factor": null, "head_dim": null})"},
    .make = make_gpt_neox};

}  // namespace heed::detail
