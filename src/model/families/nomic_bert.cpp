// Nomic BERT (Nussbaum et al. 2024): BERT's layers with rotary positions and gated MLPs, without biases.
//
//   attention(rope(q), rope(k), v),   q, k, v = W_QKV x;   mlp(x) = W_2 (act(W_12 x) * (W_11 x))
//
// families/encoder.hpp has the rest.
#include <utility>

#include "model/families/bert_weights.hpp"

namespace heed::detail {
namespace {

EncoderBlock read_nomic_block(Weights& weights, const std::string& at, std::int64_t dim, std::int64_t inner,
                              double epsilon, Activation activation) {
  EncoderBlock block;
  const WeightMatrix all = linear_weights(weights, at + "attn.Wqkv", 3 * dim, dim, false).weight;
  const auto part = [&](std::int64_t n) { return LinearWeights{rows_between(all, n * dim, dim), {}, false}; };
  block.query = part(0);
  block.key = part(1);
  block.value = part(2);
  block.output = linear_weights(weights, at + "attn.out_proj", dim, dim, false);
  block.attention_norm = layer_norm_weights(weights, at + "norm1", dim, epsilon);
  block.feed_forward.up = linear_weights(weights, at + "mlp.fc11", inner, dim, false);
  block.feed_forward.gate = linear_weights(weights, at + "mlp.fc12", inner, dim, false);
  block.feed_forward.down = linear_weights(weights, at + "mlp.fc2", dim, inner, false);
  block.feed_forward.activation = activation;
  block.mlp_norm = layer_norm_weights(weights, at + "norm2", dim, epsilon);
  return block;
}

std::unique_ptr<const Family> make_nomic_bert(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  read_sizes(config, info);
  const std::int64_t inner = config.integer("intermediate_size", 1, kMaxWidth), dim = info.model_dim;
  info.context = config.integer("max_position_embeddings", 1, kMaxContext);
  const double epsilon = epsilon_of(config, "layer_norm_eps");
  const std::string root = root_of(weights, "nomic_bert.");
  EncoderWeights made;
  made.tokens = weights.matrix(root + "embeddings.word_embeddings.weight", info.vocabulary, dim);
  made.types = weights.matrix(root + "embeddings.token_type_embeddings.weight",
                              config.integer("type_vocab_size", 1, kMaxVocabulary), dim);
  made.norm = layer_norm_weights(weights, root + "emb_ln", dim, epsilon);
  require_number(config, "head_dim", static_cast<double>(info.head_dim));
  const RopeRules rules = rope_rules(config);
  made.rope = Rope(config, rules, rotated_dims(config, rules, info.head_dim));
  for (std::int64_t n = 0; n < info.layers; ++n)
    made.blocks.push_back(read_nomic_block(weights, root + "encoder.layers." + std::to_string(n) + ".", dim,
                                           inner, epsilon, activation_of(config, "hidden_act")));
  made.head = read_prediction_head(config, weights, made.tokens, "layer_norm");
  leave_heads(weights, root, {"pooler.dense", "classifier"});
  auto family = make_encoder(std::move(made), info);
  info.fixed_context = false;
  return family;
}

}  // namespace

const FamilyEntry kNomicBert = {
    .model_type = "nomic_bert",
    .keys = {.read = R"({"vocab_size": 30528, "hidden_size": 768, "num_hidden_layers": 12,
                 "num_attention_heads": 12, "intermediate_size": 3072, "max_position_embeddings": 2048,
                 "type_vocab_size": 2, "hidden_act": "silu", "layer_norm_eps": 1e-12, "head_dim": null,
                 "rope_parameters": null, "rope_scaling": null, "rope_theta": 1000.0,
                 "original_max_position_embeddings": null, "tie_word_embeddings": true})",
             // From `causal` on: keys of folders that came with code of their own.
             .only = R"({"is_causal": false, "partial_rotary_factor": 1,
                 "causal": false, "prenorm": false, "parallel_block": false, "use_rms_norm": false,
                 "qkv_proj_bias": false, "mlp_fc1_bias": false, "mlp_fc2_bias": false,
                 "activation_function": "swiglu", "rotary_emb_fraction": 1, "rotary_emb_interleaved": false,
                 "rotary_emb_base": 1000, "n_embd": 768, "n_head": 12, "n_inner": 3072, "n_layer": 12,
                 "layer_norm_epsilon": 1e-12})"},
    .make = make_nomic_bert};

}  // namespace heed::detail
