// ModernBERT (Warner et al. 2024): an encoder with norms before attention and MLP, rotary positions, gated
// MLPs, and layers with a window between layers that see all.
//
//   x = norm(E[id])
//   x = x + attention(rope(q), rope(k), v) W_O,   q, k, v = W_QKV norm(x), where layer 0 has no norm
//   x = x + W_2 (act(a) * b),   a, b = W_1 norm(x)
//   logits = norm(act(norm(x) W_T)) W_U^T + b
//
// families/pre_norm.hpp has the block.
#include <string>
#include <vector>

#include "model/families/gated_decoder.hpp"
#include "model/families/pre_norm.hpp"

namespace heed::detail {
namespace {

// Rows of a layer's matrix, with their biases.
LinearWeights part_of(const LinearWeights& whole, std::int64_t begin, std::int64_t count) {
  LinearWeights part{rows_between(whole.weight, begin, count), {}, false};
  if (whole.bias.view().count() > 0) part.bias = Tensor::copy_of(whole.bias.view().narrow(0, begin, count));
  return part;
}

class ModernBertReader {
 public:
  ModernBertReader(const ModelConfig& config, Weights& weights, ModelInfo& info)
      : config_(config), weights_(weights), info_(info), dim_(info.model_dim) {}

  PreNormWeights read() {
    PreNormWeights made;
    made.rope = rope("full_attention", "global_rope_theta");
    made.window_rope = rope("sliding_attention", "local_rope_theta");
    const std::vector<std::int64_t> reaches =
        layer_reaches(config_, info_.layers, config_.integer("local_attention", 2, kMaxContext) / 2,
                      [&](std::int64_t layer) {
                        return layer % config_.integer("global_attn_every_n_layers", 1, kMaxLayers) != 0;
                      });
    const std::string root = weights_.contains("model.embeddings.tok_embeddings.weight") ? "model." : "";
    made.tokens = weights_.matrix(root + "embeddings.tok_embeddings.weight", info_.vocabulary, dim_);
    made.embedding_norm = norm(root + "embeddings.norm");
    for (std::int64_t n = 0; n < info_.layers; ++n) {
      made.blocks.push_back(block(root + "layers." + std::to_string(n) + ".", n));
      made.blocks.back().reach = reaches[static_cast<std::size_t>(n)];
    }
    made.last_norm = norm(root + "final_norm");
    info_.predicts = weights_.contains("head.dense.weight") && !weights_.contains("classifier.weight");
    for (const char* name : {"head.dense.weight", "head.norm.weight", "classifier.weight", "classifier.bias"})
      weights_.leave(name);
    if (info_.predicts) made.head = head(made.tokens);
    return made;
  }

 private:
  // rope_parameters has an object for each type of layer. Older files have a base for each.
  [[nodiscard]] Rope rope(const char* type, const char* base) const {
    const RopeRules rules = rope_rules_of_type(config_, type, base, true);
    return {config_, rules, rotated_dims(config_, rules, info_.head_dim)};
  }

  LayerNormWeights norm(const std::string& name) {
    return layer_norm_weights(weights_, name, dim_, epsilon_of(config_, "norm_eps"),
                              config_.flag("norm_bias"));
  }

  PreNormBlock block(const std::string& at, std::int64_t layer) {
    const std::int64_t inner = config_.integer("intermediate_size", 1, kMaxWidth);
    const bool bias = config_.flag("attention_bias"), mlp_bias = config_.flag("mlp_bias");
    PreNormBlock block;
    if (layer > 0) block.attention_norm = norm(at + "attn_norm");
    block.query_key_value = linear_weights(weights_, at + "attn.Wqkv", 3 * dim_, dim_, bias);
    block.output = linear_weights(weights_, at + "attn.Wo", dim_, dim_, bias);
    block.mlp_norm = norm(at + "mlp_norm");
    const LinearWeights both = linear_weights(weights_, at + "mlp.Wi", 2 * inner, dim_, mlp_bias);
    block.feed_forward.gate = part_of(both, 0, inner);
    block.feed_forward.up = part_of(both, inner, inner);
    block.feed_forward.down = linear_weights(weights_, at + "mlp.Wo", dim_, inner, mlp_bias);
    block.feed_forward.activation = activation_of(config_, "hidden_activation");
    return block;
  }

  EncoderHead head(const WeightMatrix& tokens) {
    EncoderHead head;
    head.transform = linear_weights(weights_, "head.dense", dim_, dim_, config_.flag("classifier_bias"));
    head.activation = activation_of(config_, "classifier_activation");
    head.norm = norm("head.norm");
    head.unembedding.weight = unembedding_weight(config_, weights_, "decoder.weight", tokens);
    if (config_.flag("decoder_bias")) head.unembedding.bias = weights_.vector("decoder.bias", tokens.rows);
    return head;
  }

  const ModelConfig& config_;
  Weights& weights_;
  ModelInfo& info_;
  std::int64_t dim_;
};

std::unique_ptr<const Family> make_modernbert(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  read_sizes(config, info);
  info.context = config.integer("max_position_embeddings", 1, kMaxContext);
  info.causal = false;
  require_number(config, "head_dim", static_cast<double>(info.head_dim));
  return make_pre_norm(ModernBertReader(config, weights, info).read(), info);
}

}  // namespace

const FamilyEntry kModernBert = {
    .model_type = "modernbert",
    .keys =
        {.read = R"({"vocab_size": 50368, "hidden_size": 768, "intermediate_size": 1152,
                 "num_hidden_layers": 22, "num_attention_heads": 12, "head_dim": null, "hidden_activation": "gelu",
                 "max_position_embeddings": 8192, "norm_eps": 1e-5, "norm_bias": false,
                 "attention_bias": false, "mlp_bias": false, "decoder_bias": true, "layer_types": null,
                 "global_attn_every_n_layers": 3, "local_attention": 128, "rope_parameters": null,
                 "rope_scaling": null, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0,
                 "classifier_bias": false, "classifier_activation": "gelu", "tie_word_embeddings": true})",
         .only = R"({"is_causal": false, "partial_rotary_factor": 1})",
         .unused =
             "rope_theta layer_norm_eps position_embedding_type initializer_cutoff_factor embedding_dropout "
             "mlp_dropout classifier_pooling deterministic_flash_attn sparse_prediction "
             "sparse_pred_ignore_index cls_token_id reference_compile repad_logits_with_grad"},
    .make = make_modernbert};

}  // namespace heed::detail
