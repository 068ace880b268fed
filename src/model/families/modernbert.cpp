// ModernBERT (Warner et al. 2024): an encoder with norms before attention and MLP, rotary positions, gated
// MLPs, and layers with a window between layers that see all.
//
//   x = norm(E[id])
//   x = x + attention(rope(q), rope(k), v) W_O,   q, k, v = W_QKV norm(x), where layer 0 has no norm
//   x = x + W_2 (act(a) * b),   a, b = W_1 norm(x)
//   logits = norm(act(norm(x) W_T)) W_U^T + b

#include "model/families/family.hpp"
#include "model/families/gated_decoder.hpp"
#include "model/layers/linear.hpp"
#include "model/layers/mlp.hpp"
#include "model/layers/norms.hpp"
#include "model/layers/rope.hpp"

namespace heed::detail {
namespace {

struct ModernBlock {
  std::optional<LayerNormWeights> attention_norm;
  LayerNormWeights mlp_norm;
  LinearWeights query_key_value, output;
  MlpWeights feed_forward;
};

// Rows of a layer's matrix, with their biases.
LinearWeights part_of(const LinearWeights& whole, std::int64_t begin, std::int64_t count) {
  LinearWeights part{rows_between(whole.weight, begin, count), {}, false};
  if (whole.bias.view().count() > 0) part.bias = Tensor::copy_of(whole.bias.view().narrow(0, begin, count));
  return part;
}

class ModernBert final : public Family {
 public:
  ModernBert(const ModelConfig& config, Weights& weights, ModelInfo& info) {
    read_sizes(config, info);
    read_ropes(config);
    reaches_ = layer_reaches(
        config, info.layers, config.integer("local_attention", 2, kMaxContext) / 2, [&](std::int64_t layer) {
          return layer % config.integer("global_attn_every_n_layers", 1, kMaxLayers) != 0;
        });
    read_weights(config, weights, info);
  }

  Tensor embed(std::span<const std::int64_t> ids, std::int64_t /*begin*/, int threads) const override {
    return layer_norm(rows_of(tokens_, ids, threads), embedding_norm_, threads);
  }

  Projected project(std::int64_t layer, const Tensor& stream, std::int64_t begin,
                    int threads) const override {
    const auto at = static_cast<std::size_t>(layer);
    const ModernBlock& block = blocks_[at];
    Projected made;
    made.memory.push_back(
        linear(block.attention_norm ? layer_norm(stream, *block.attention_norm, threads) : stream.view(),
               block.query_key_value, threads));
    const auto part = [&](std::int64_t which) {
      return as_heads(made.memory.back(), which * dim_, heads_, dim_ / heads_);
    };
    rotate(reaches_[at] >= 0 ? window_rope_ : rope_, part(0), part(1), begin, threads);
    made.query = part(0);
    made.key = part(1);
    made.value = part(2);
    made.options.window = {.left = reaches_[at], .right = reaches_[at]};
    return made;
  }

  void finish(std::int64_t layer, const Tensor& heads, Tensor& stream, int threads) const override {
    const ModernBlock& block = blocks_[static_cast<std::size_t>(layer)];
    add_to(stream, linear(heads, block.output, threads), threads);
    add_to(stream, mlp(layer_norm(stream, block.mlp_norm, threads), block.feed_forward, threads), threads);
  }

  Tensor last_norm(const Tensor& stream, int threads) const override {
    return layer_norm(stream, last_norm_, threads);
  }

  Tensor logits(const TensorView& hidden, int threads) const override {
    Tensor x = linear(hidden, transform_, threads);
    activate(transform_activation_, x, threads);
    return linear(layer_norm(x, transform_norm_, threads), unembedding_, threads);
  }

  const LinearWeights& output_projection(std::int64_t layer) const override {
    return blocks_[static_cast<std::size_t>(layer)].output;
  }

  HeadInput head_input(std::int64_t layer, InputKind kind, std::int64_t head,
                       const Tensor& row) const override {
    const auto at = static_cast<std::size_t>(layer);
    const ModernBlock& block = blocks_[at];
    HeadInput input;
    if (block.attention_norm) input.norm = held_norm(*block.attention_norm, row.values<float>());
    input.weights = &block.query_key_value;
    input.first = static_cast<std::int64_t>(kind) * dim_ + head * (dim_ / heads_);
    if (kind != InputKind::value) input.rope = reaches_[at] >= 0 ? &window_rope_ : &rope_;
    return input;
  }

 private:
  void read_sizes(const ModelConfig& config, ModelInfo& info) {
    info.layers = config.integer("num_hidden_layers", 1, kMaxLayers);
    heads_ = info.heads = info.kv_heads = config.integer("num_attention_heads", 1, kMaxHeads);
    dim_ = info.model_dim = config.integer("hidden_size", 1, kMaxWidth);
    info.vocabulary = config.integer("vocab_size", 1, kMaxVocabulary);
    info.context = config.integer("max_position_embeddings", 1, kMaxContext);
    info.causal = false;
    require_multiple(config, "hidden_size", dim_, "num_attention_heads", heads_);
    info.head_dim = dim_ / heads_;
    require_number(config, "head_dim", static_cast<double>(info.head_dim));
    epsilon_ = epsilon_of(config, "norm_eps");
    norm_bias_ = config.flag("norm_bias");
  }

  // rope_parameters has an object for each type of layer. Older files have a base for each.
  void read_ropes(const ModelConfig& config) {
    const auto rope_of = [&](const char* type, const char* base) {
      const RopeRules rules = rope_rules_of_type(config, type, base, true);
      return Rope(config, rules, rotated_dims(config, rules, dim_ / heads_));
    };
    rope_ = rope_of("full_attention", "global_rope_theta");
    window_rope_ = rope_of("sliding_attention", "local_rope_theta");
  }

  LayerNormWeights norm(Weights& weights, const std::string& name) const {
    return layer_norm_weights(weights, name, dim_, epsilon_, norm_bias_);
  }

  void read_weights(const ModelConfig& config, Weights& weights, ModelInfo& info) {
    const std::string root = weights.contains("model.embeddings.tok_embeddings.weight") ? "model." : "";
    tokens_ = weights.matrix(root + "embeddings.tok_embeddings.weight", info.vocabulary, dim_);
    embedding_norm_ = norm(weights, root + "embeddings.norm");
    for (std::int64_t n = 0; n < info.layers; ++n)
      blocks_.push_back(read_block(config, weights, root + "layers." + std::to_string(n) + ".", n));
    last_norm_ = norm(weights, root + "final_norm");
    info.predicts = weights.contains("head.dense.weight") && !weights.contains("classifier.weight");
    for (const char* name : {"head.dense.weight", "head.norm.weight", "classifier.weight", "classifier.bias"})
      weights.leave(name);
    if (info.predicts) read_head(config, weights);
  }

  ModernBlock read_block(const ModelConfig& config, Weights& weights, const std::string& at,
                         std::int64_t layer) const {
    const std::int64_t inner = config.integer("intermediate_size", 1, kMaxWidth);
    const bool bias = config.flag("attention_bias"), mlp_bias = config.flag("mlp_bias");
    ModernBlock block;
    if (layer > 0) block.attention_norm = norm(weights, at + "attn_norm");
    block.query_key_value = linear_weights(weights, at + "attn.Wqkv", 3 * dim_, dim_, bias);
    block.output = linear_weights(weights, at + "attn.Wo", dim_, dim_, bias);
    block.mlp_norm = norm(weights, at + "mlp_norm");
    const LinearWeights both = linear_weights(weights, at + "mlp.Wi", 2 * inner, dim_, mlp_bias);
    block.feed_forward.gate = part_of(both, 0, inner);
    block.feed_forward.up = part_of(both, inner, inner);
    block.feed_forward.down = linear_weights(weights, at + "mlp.Wo", dim_, inner, mlp_bias);
    block.feed_forward.activation = activation_of(config, "hidden_activation");
    return block;
  }

  void read_head(const ModelConfig& config, Weights& weights) {
    transform_ = linear_weights(weights, "head.dense", dim_, dim_, config.flag("classifier_bias"));
    transform_activation_ = activation_of(config, "classifier_activation");
    transform_norm_ = norm(weights, "head.norm");
    unembedding_.weight = unembedding_weight(config, weights, "decoder.weight", tokens_);
    if (config.flag("decoder_bias")) unembedding_.bias = weights.vector("decoder.bias", tokens_.rows);
  }

  std::int64_t dim_ = 0, heads_ = 0;
  double epsilon_ = 1e-5;
  bool norm_bias_ = false;
  Rope rope_, window_rope_;
  std::vector<std::int64_t> reaches_;
  WeightMatrix tokens_;
  LayerNormWeights embedding_norm_, last_norm_, transform_norm_;
  std::vector<ModernBlock> blocks_;
  LinearWeights transform_, unembedding_;
  Activation transform_activation_ = Activation::gelu;
};

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
    .make = make_family<ModernBert>};

}  // namespace heed::detail
