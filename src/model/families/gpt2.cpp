// GPT-2 (Radford et al. 2019): learned positions, norms before attention and MLP, one product for queries,
// keys and values, all with biases.
//
//   x = wte[id] + wpe[position]
//   x = x + attention(ln_1(x)) W_O,   x = x + mlp(ln_2(x))
//   logits = ln_f(x) W_U^T, where W_U is wte unless the file has an lm_head
//
// families/pre_norm.hpp has the block.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "io/gpt2_keys.hpp"
#include "model/families/pre_norm.hpp"

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

PreNormBlock read_gpt2_block(Weights& weights, const std::string& at, std::int64_t dim, std::int64_t inner,
                             double epsilon) {
  PreNormBlock block;
  block.attention_norm = layer_norm_weights(weights, at + "ln_1", dim, epsilon);
  block.query_key_value = conv1d(weights, at + "attn.c_attn", dim, 3 * dim);
  block.output = conv1d(weights, at + "attn.c_proj", dim, dim);
  block.mlp_norm = layer_norm_weights(weights, at + "ln_2", dim, epsilon);
  block.feed_forward.up = conv1d(weights, at + "mlp.c_fc", dim, inner);
  block.feed_forward.down = conv1d(weights, at + "mlp.c_proj", inner, dim);
  if (inner == 1 && adds_nothing(block.feed_forward)) weights.do_not_count(5 * dim + 1);
  // Old files store masks.
  weights.leave(at + "attn.bias");
  weights.leave(at + "attn.masked_bias");
  return block;
}

std::unique_ptr<const Family> make_gpt2(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  read_sizes(config, info, {.layers = "n_layer", .heads = "n_head", .width = "n_embd"});
  info.context = config.integer("n_positions", 1, kMaxContext);
  info.fixed_context = true;
  info.causal = is_causal(config);
  const std::int64_t dim = info.model_dim;
  const double epsilon = epsilon_of(config, "layer_norm_epsilon");
  const double scale =
      config.flag("scale_attn_weights") ? 1 / std::sqrt(static_cast<double>(info.head_dim)) : 1;
  const bool scaled_by_layer = config.flag("scale_attn_by_inverse_layer_idx");
  const Activation activation = activation_of(config, "activation_function");
  const std::int64_t inner = config.has("n_inner") ? config.integer("n_inner", 1, kMaxWidth) : 4 * dim;
  const std::string root = weights.contains("transformer.wte.weight") ? "transformer." : "";
  PreNormWeights made;
  made.tokens = weights.matrix(root + "wte.weight", info.vocabulary, dim);
  made.positions = weights.matrix(root + "wpe.weight", info.context, dim);
  for (std::int64_t n = 0; n < info.layers; ++n) {
    PreNormBlock& block = made.blocks.emplace_back(
        read_gpt2_block(weights, root + "h." + std::to_string(n) + ".", dim, inner, epsilon));
    block.feed_forward.activation = activation;
    block.scale = scaled_by_layer ? scale / static_cast<double>(n + 1) : scale;
  }
  made.last_norm = layer_norm_weights(weights, root + "ln_f", dim, epsilon);
  // A model without unembedding is stored without the prefix.
  info.predicts = !root.empty() || config.flag("tie_word_embeddings") || weights.contains("lm_head.weight");
  if (info.predicts)
    made.unembedding.weight = unembedding_weight(config, weights, "lm_head.weight", made.tokens);
  return make_pre_norm(std::move(made), info);
}

}  // namespace

// In f32 reorder_and_upcast_attn does not change the numbers. Old files have n_ctx beside n_positions.
const FamilyEntry kGpt2 = {.model_type = "gpt2",
                           .keys = {.read = kGpt2Keys,
                                    .only = kGpt2OnlyKeys,
                                    .unused = "reorder_and_upcast_attn n_ctx",
                                    .renamed = kGpt2Renamed},
                           .make = make_gpt2};

}  // namespace heed::detail
