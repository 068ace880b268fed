// GPT-2 (Radford et al. 2019): learned positions, norms before attention and MLP, one product for queries,
// keys and values, all with biases.
//
//   x = wte[id] + wpe[position]
//   x = x + attention(ln_1(x)) W_O,   x = x + mlp(ln_2(x))
//   logits = ln_f(x) W_U^T, where W_U is wte unless the file has an lm_head
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "io/gpt2_keys.hpp"
#include "model/families/normed_decoder.hpp"

namespace heed::detail {
namespace {

// Conv1D: the weight is [inputs, outputs]. From GGUF it is [outputs, inputs], under a name of its own.
LinearWeights conv1d(Weights& weights, const std::string& name, std::int64_t inputs, std::int64_t outputs) {
  if (const std::string other = name + ".by_outputs"; weights.contains(other + ".weight"))
    return linear_weights(weights, other, outputs, inputs, true);
  return {weights.matrix(name + ".weight", inputs, outputs), weights.vector(name + ".bias", outputs), true};
}

// heed train writes attention-only models with MLPs of one unit whose output is 0.
bool adds_nothing(const MlpWeights& mlp) {
  std::vector<float> row(static_cast<std::size_t>(mlp.down.weight.columns));
  read_weight_row(mlp.down.weight, 0, row.data());
  const auto bias = mlp.down.bias.values<float>();
  const auto is_zero = [](float value) { return value == 0; };
  return std::ranges::all_of(row, is_zero) && std::ranges::all_of(bias, is_zero);
}

class Gpt2 final : public NormedDecoder {
 public:
  Gpt2(const ModelConfig& config, Weights& weights, ModelInfo& info) {
    info.layers = config.integer("n_layer", 1, kMaxLayers);
    info.heads = info.kv_heads = config.integer("n_head", 1, kMaxHeads);
    info.model_dim = config.integer("n_embd", 1, kMaxWidth);
    info.vocabulary = config.integer("vocab_size", 1, kMaxVocabulary);
    info.context = config.integer("n_positions", 1, kMaxContext);
    info.fixed_context = true;
    info.causal = causal_ = is_causal(config);
    require_multiple(config, "n_embd", info.model_dim, "n_head", info.heads);
    info.head_dim = info.model_dim / info.heads;
    dim_ = info.model_dim;
    heads_ = info.heads;
    head_dim_ = info.head_dim;
    read_rules(config, info);
    read_weights(config, weights, info);
  }

  Tensor embed(std::span<const std::int64_t> ids, std::int64_t begin, int threads) const override {
    Tensor x = rows_of(tokens_, ids, threads);
    std::vector<std::int64_t> places(ids.size());
    for (std::size_t i = 0; i < places.size(); ++i) places[i] = begin + static_cast<std::int64_t>(i);
    add_to(x, rows_of(positions_, places, threads), threads);
    return x;
  }

  Projected project(std::int64_t layer, const Tensor& stream, std::int64_t /*begin*/,
                    int threads) const override {
    Projected made;
    Tensor& product = fused(layer, stream, threads, made);
    made.query = as_heads(product, 0, heads_, head_dim_);
    made.key = as_heads(product, dim_, heads_, head_dim_);
    made.value = as_heads(product, 2 * dim_, heads_, head_dim_);
    double scale = scaled_ ? 1 / std::sqrt(static_cast<double>(head_dim_)) : 1;
    if (scaled_by_layer_) scale /= static_cast<double>(layer + 1);
    made.options.scale = scale;
    return made;
  }

  void finish(std::int64_t layer, const Tensor& heads, Tensor& stream, int threads) const override {
    const NormedBlock& block = block_of(layer);
    add_to(stream, linear(heads, block.output, threads), threads);
    add_to(stream, mlp(layer_norm(stream, block.mlp_norm, threads), block.feed_forward, threads), threads);
  }

  HeadInput head_input(std::int64_t layer, InputKind kind, std::int64_t head,
                       const Tensor& row) const override {
    const NormedBlock& block = block_of(layer);
    return {held_norm(block.attention_norm, row.values<float>()),
            &block.query_key_value,
            static_cast<std::int64_t>(kind) * dim_ + head * head_dim_,
            {},
            nullptr};
  }
  std::optional<Tensor> position_share(std::span<const std::int64_t> /*ids*/,
                                       std::int64_t at) const override {
    return rows_of(positions_, {{at}}, 1);
  }

 private:
  void read_rules(const ModelConfig& config, const ModelInfo& info) {
    epsilon_ = epsilon_of(config, "layer_norm_epsilon");
    scaled_ = config.flag("scale_attn_weights");
    scaled_by_layer_ = config.flag("scale_attn_by_inverse_layer_idx");
    activation_ = activation_of(config, "activation_function");
    inner_ = config.has("n_inner") ? config.integer("n_inner", 1, kMaxWidth) : 4 * info.model_dim;
  }

  void read_weights(const ModelConfig& config, Weights& weights, ModelInfo& info) {
    const std::string root = weights.contains("transformer.wte.weight") ? "transformer." : "";
    tokens_ = weights.matrix(root + "wte.weight", info.vocabulary, dim_);
    positions_ = weights.matrix(root + "wpe.weight", info.context, dim_);
    for (std::int64_t n = 0; n < info.layers; ++n) {
      const std::string at = root + "h." + std::to_string(n) + ".";
      NormedBlock block;
      block.attention_norm = layer_norm_weights(weights, at + "ln_1", dim_, epsilon_);
      block.query_key_value = conv1d(weights, at + "attn.c_attn", dim_, 3 * dim_);
      block.output = conv1d(weights, at + "attn.c_proj", dim_, dim_);
      block.mlp_norm = layer_norm_weights(weights, at + "ln_2", dim_, epsilon_);
      block.feed_forward.up = conv1d(weights, at + "mlp.c_fc", dim_, inner_);
      block.feed_forward.down = conv1d(weights, at + "mlp.c_proj", inner_, dim_);
      block.feed_forward.activation = activation_;
      if (inner_ == 1 && adds_nothing(block.feed_forward)) weights.do_not_count(5 * dim_ + 1);
      blocks_.push_back(std::move(block));
      // Old files store masks.
      weights.leave(at + "attn.bias");
      weights.leave(at + "attn.masked_bias");
    }
    last_norm_ = layer_norm_weights(weights, root + "ln_f", dim_, epsilon_);
    // A model without unembedding is stored without the prefix.
    info.predicts = !root.empty() || config.flag("tie_word_embeddings") || weights.contains("lm_head.weight");
    if (info.predicts) unembedding_.weight = unembedding_weight(config, weights, "lm_head.weight", tokens_);
  }

  std::int64_t inner_ = 0;
  double epsilon_ = 1e-5;
  bool scaled_ = true, scaled_by_layer_ = false;
  Activation activation_ = Activation::gelu_tanh;
  WeightMatrix positions_;
};

}  // namespace

// In f32 reorder_and_upcast_attn does not change the numbers. Old files have n_ctx beside n_positions.
const FamilyEntry kGpt2 = {.model_type = "gpt2",
                           .keys = {.read = kGpt2Keys,
                                    .only = kGpt2OnlyKeys,
                                    .unused = "reorder_and_upcast_attn n_ctx",
                                    .renamed = kGpt2Renamed},
                           .make = make_family<Gpt2>};

}  // namespace heed::detail
