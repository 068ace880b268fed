// GPT-NeoX (Black et al. 2022), Pythia's family: rotary positions on a part of each head, one product for
// queries, keys and values, ordered by head, and attention and MLP that read the same stream.
//
//   x = E[id]
//   x = x + attention(norm_1(x)) W_O + mlp(norm_2(x))                              parallel residual
//   y = x + attention(norm_1(x)) W_O,   x = y + mlp(norm_2(y))                     otherwise
//   logits = norm(x) W_U^T
#include <utility>

#include "model/families/normed_decoder.hpp"
#include "model/layers/rope.hpp"

namespace heed::detail {
namespace {

class GptNeox final : public NormedDecoder {
 public:
  GptNeox(const ModelConfig& config, Weights& weights, ModelInfo& info) {
    info.layers = config.integer("num_hidden_layers", 1, kMaxLayers);
    info.heads = info.kv_heads = config.integer("num_attention_heads", 1, kMaxHeads);
    info.model_dim = config.integer("hidden_size", 1, kMaxWidth);
    info.vocabulary = config.integer("vocab_size", 1, kMaxVocabulary);
    info.context = config.integer("max_position_embeddings", 1, kMaxContext);
    require_multiple(config, "hidden_size", info.model_dim, "num_attention_heads", info.heads);
    info.head_dim = info.model_dim / info.heads;
    info.causal = causal_ = is_causal(config);
    dim_ = info.model_dim;
    heads_ = info.heads;
    head_dim_ = info.head_dim;
    parallel_ = config.flag("use_parallel_residual");
    read_rope(config);
    read_weights(config, weights, info);
  }

  Tensor embed(std::span<const std::int64_t> ids, std::int64_t /*begin*/, int threads) const override {
    return rows_of(tokens_, ids, threads);
  }

  Projected project(std::int64_t layer, const Tensor& stream, std::int64_t begin,
                    int threads) const override {
    Projected made;
    // Columns are [H, 3, d]: a head's query, key and value are adjacent.
    float* product = fused(layer, stream, threads, made).values<float>().data();
    const auto part = [&](std::int64_t which) {
      return MutableTensorView(product + which * head_dim_, {heads_, stream.size(0), head_dim_},
                               {3 * head_dim_, 3 * dim_, 1});
    };
    rotate(rope_, part(0), part(1), begin, threads);
    made.query = part(0);
    made.key = part(1);
    made.value = part(2);
    return made;
  }

  void finish(std::int64_t layer, const Tensor& heads, Tensor& stream, int threads) const override {
    const NormedBlock& block = block_of(layer);
    const Tensor attended = linear(heads, block.output, threads);
    if (!parallel_) add_to(stream, attended, threads);
    const Tensor fed = mlp(layer_norm(stream, block.mlp_norm, threads), block.feed_forward, threads);
    if (parallel_) add_to(stream, attended, threads);
    add_to(stream, fed, threads);
  }

  HeadInput head_input(std::int64_t layer, InputKind kind, std::int64_t head,
                       const Tensor& row) const override {
    const NormedBlock& block = block_of(layer);
    return {held_norm(block.attention_norm, row.values<float>()),
            &block.query_key_value,
            (3 * head + static_cast<std::int64_t>(kind)) * head_dim_,
            {},
            kind == InputKind::value ? nullptr : &rope_};
  }

 private:
  void read_rope(const ModelConfig& config) {
    const RopeRules rules = rope_rules(config, "rotary_emb_base", "rotary_pct");
    // transformers ignores the first two here, and uses the third only to rotate.
    require_number(config, "rope_theta", rules.base);
    require_number(config, "partial_rotary_factor", rules.share);
    require_number(config, "head_dim", static_cast<double>(head_dim_));
    rope_ = Rope(config, rules, rotated_dims(config, rules, head_dim_));
  }

  void read_weights(const ModelConfig& config, Weights& weights, ModelInfo& info) {
    const double epsilon = epsilon_of(config, "layer_norm_eps");
    const std::int64_t inner = config.integer("intermediate_size", 1, kMaxWidth);
    const Activation activation = activation_of(config, "hidden_act");
    const bool bias = config.flag("attention_bias");
    const bool whole = weights.contains("gpt_neox.embed_in.weight");
    const std::string root = whole ? "gpt_neox." : "";
    tokens_ = weights.matrix(root + "embed_in.weight", info.vocabulary, dim_);
    for (std::int64_t n = 0; n < info.layers; ++n) {
      const std::string at = root + "layers." + std::to_string(n) + ".";
      NormedBlock block;
      block.attention_norm = layer_norm_weights(weights, at + "input_layernorm", dim_, epsilon);
      block.query_key_value = linear_weights(weights, at + "attention.query_key_value", 3 * dim_, dim_, bias);
      block.output = linear_weights(weights, at + "attention.dense", dim_, dim_, bias);
      block.mlp_norm = layer_norm_weights(weights, at + "post_attention_layernorm", dim_, epsilon);
      block.feed_forward.up = linear_weights(weights, at + "mlp.dense_h_to_4h", inner, dim_, true);
      block.feed_forward.down = linear_weights(weights, at + "mlp.dense_4h_to_h", dim_, inner, true);
      block.feed_forward.activation = activation;
      blocks_.push_back(std::move(block));
      // Old files store masks and frequencies.
      for (const char* kept : {"bias", "masked_bias", "rotary_emb.inv_freq"})
        weights.leave(at + "attention." + kept);
    }
    last_norm_ = layer_norm_weights(weights, root + "final_layer_norm", dim_, epsilon);
    info.predicts = whole || config.flag("tie_word_embeddings");
    if (info.predicts) unembedding_.weight = unembedding_weight(config, weights, "embed_out.weight", tokens_);
  }

  bool parallel_ = true;
  Rope rope_;
};

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
    .make = make_family<GptNeox>};

}  // namespace heed::detail
