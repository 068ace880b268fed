#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "heed/error.hpp"
#include "heed/parallel.hpp"
#include "heed/transformer.hpp"
#include "nn/attention_layer.hpp"
#include "nn/checks.hpp"
#include "nn/elements.hpp"

namespace heed::nn {
namespace {

constexpr double kDeviation = 0.02;
constexpr std::int64_t kMlpFactor = 4;
// Beyond these a model is a mistake (or a hostile file), not a small language model; no product of two or
// three of them overflows.
constexpr std::int64_t kMostVocabulary = 1'000'000;
constexpr std::int64_t kMostContext = 1'000'000;
constexpr std::int64_t kMostLayers = 1000;
constexpr std::int64_t kMostDim = 100'000;

void require_between(std::int64_t size, const char* name, std::int64_t most) {
  if (size < 1 || size > most)
    detail::refuse(std::string(name) + " is " + std::to_string(size) + "; a number from 1 to " +
                   std::to_string(most) + " is expected");
}

const LanguageModelConfig& checked(const LanguageModelConfig& config) {
  check(config);
  return config;
}

std::int64_t mlp_dim(const LanguageModelConfig& config) {
  return config.attention_only ? 0 : kMlpFactor * config.model_dim;
}

std::vector<TransformerBlock> drawn_blocks(const LanguageModelConfig& config, Generator& generator,
                                           DType dtype) {
  std::vector<TransformerBlock> blocks;
  for (std::int64_t i = 0; i < config.layers; ++i)
    blocks.emplace_back(config.model_dim, config.heads, mlp_dim(config), generator, dtype);
  return blocks;
}

// GPT-2's numbers in place of those that the layers drew of themselves.
void draw_again(Linear& layer, double deviation, Generator& generator) {
  normal_(generator, layer.weight, 0, deviation);
  if (layer.bias) *layer.bias = Tensor(layer.bias->shape(), layer.bias->dtype());
}

void draw_again(TransformerBlock& block, double into_stream, Generator& generator) {
  for (Linear* part : {&block.attention.query, &block.attention.key, &block.attention.value})
    draw_again(*part, kDeviation, generator);
  draw_again(*block.attention.out_proj, into_stream, generator);
  if (!block.mlp) return;
  draw_again(block.mlp->up, kDeviation, generator);
  draw_again(block.mlp->down, into_stream, generator);
}

// What one piece of the batch contributes.
struct Shard {
  double loss_share = 0;
  std::optional<LanguageModel> grads;
};

void copy_or_add(const std::vector<NamedParameter>& from, const std::vector<NamedParameter>& to, bool first) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (first)
      *to[i].value = *from[i].value;
    else
      detail::add(*from[i].value, *to[i].value);
  }
}

std::int64_t targets_that_count(const TensorView& targets) {
  const Tensor whole = Tensor::copy_of(targets, DType::i64);
  const auto values = whole.values<std::int64_t>();
  return static_cast<std::int64_t>(values.size()) -
         std::count(values.begin(), values.end(), LanguageModel::kIgnore);
}

}  // namespace

void check(const LanguageModelConfig& config) {
  require_between(config.vocabulary, "vocabulary", kMostVocabulary);
  require_between(config.context, "context", kMostContext);
  require_between(config.layers, "layers", kMostLayers);
  require_between(config.model_dim, "model_dim", kMostDim);
  require_between(config.heads, "heads", config.model_dim);
  if (config.model_dim % config.heads != 0)
    detail::refuse("model_dim is " + std::to_string(config.model_dim) + "; a multiple of the " +
                   std::to_string(config.heads) + " heads is expected");
}

std::int64_t parameter_count(const LanguageModelConfig& config) {
  check(config);
  const std::int64_t d = config.model_dim;
  const std::int64_t hidden = mlp_dim(config);
  const std::int64_t attention = 4 * (d * d + d) + 2 * d;
  const std::int64_t mlp = hidden == 0 ? 0 : 2 * d * hidden + hidden + d + 2 * d;
  return (2 * config.vocabulary + config.context) * d + config.layers * (attention + mlp) + 2 * d;
}

LanguageModel::LanguageModel(const LanguageModelConfig& sizes, Generator& generator, DType dtype)
    : config(checked(sizes)),
      token_embedding(config.vocabulary, config.model_dim, generator, dtype),
      positions(config.context, config.model_dim, generator, dtype),
      blocks(drawn_blocks(config, generator, dtype)),
      norm(config.model_dim, dtype),
      unembedding(config.model_dim, config.vocabulary, false, generator, dtype) {
  normal_(generator, token_embedding.weight, 0, kDeviation);
  const double into_stream = kDeviation / std::sqrt(2.0 * static_cast<double>(config.layers));
  for (TransformerBlock& block : blocks) draw_again(block, into_stream, generator);
  draw_again(unembedding, kDeviation, generator);
}

LanguageModelResult LanguageModel::forward(const TensorView& tokens, const AttentionOptions& options) const {
  if ((tokens.rank() != 1 && tokens.rank() != 2) || tokens.shape().back() > config.context)
    detail::refuse("tokens has shape " + to_string(tokens.shape()) +
                   "; [L] or [B, L] is expected, L at most " + std::to_string(config.context));
  LanguageModelResult result;
  result.embedded = positions.forward(token_embedding.forward(tokens));
  TensorView stream = result.embedded;
  for (const TransformerBlock& block : blocks) {
    result.blocks.push_back(block.forward(stream, options));
    stream = result.blocks.back().output;
  }
  result.norm = norm.forward(stream);
  result.logits = unembedding.forward(result.norm.output);
  return result;
}

void LanguageModel::backward(const TensorView& grad_logits, const TensorView& tokens,
                             const LanguageModelResult& result, LanguageModel& grads) const {
  if (result.blocks.size() != blocks.size() || grads.blocks.size() != blocks.size())
    detail::refuse("result and grads have " + std::to_string(result.blocks.size()) + " and " +
                   std::to_string(grads.blocks.size()) + " blocks; the model's " +
                   std::to_string(blocks.size()) + " are expected");
  Tensor grad = unembedding.backward(grad_logits, result.norm.output, grads.unembedding);
  grad = norm.backward(grad, result.norm, grads.norm);
  for (std::size_t i = blocks.size(); i-- > 0;)
    grad = blocks[i].backward(grad, result.blocks[i], grads.blocks[i]);
  positions.backward(grad, grads.positions);
  token_embedding.backward(grad, tokens, grads.token_embedding);
}

double LanguageModel::loss_and_gradients(const TensorView& tokens, const TensorView& targets,
                                         LanguageModel& grads, int threads) const {
  if (tokens.rank() != 2 || targets.shape() != tokens.shape() || tokens.count() == 0)
    detail::refuse("tokens and targets have the shapes " + to_string(tokens.shape()) + " and " +
                   to_string(targets.shape()) + "; one shape [B, L] that is not empty is expected");
  const std::int64_t batch = tokens.shape()[0];
  const std::int64_t pieces = std::min(batch, kShards);
  const std::int64_t count = targets_that_count(targets);
  std::vector<Shard> shards(static_cast<std::size_t>(pieces));
  const auto learn = [&](std::int64_t index, int) {
    const std::int64_t begin = index * batch / pieces;
    const std::int64_t length = (index + 1) * batch / pieces - begin;
    const TensorView ids = tokens.narrow(0, begin, length);
    const TensorView wanted = targets.narrow(0, begin, length);
    Shard& shard = shards[static_cast<std::size_t>(index)];
    const LanguageModelResult result = forward(ids, {.threads = 1});
    const CrossEntropyResult loss = cross_entropy(result.logits, wanted, kIgnore);
    const double share = count > 0 ? static_cast<double>(loss.count) / static_cast<double>(count) : 0;
    shard.loss_share = loss.loss * share;
    shard.grads = zeros_like(*this);
    backward(cross_entropy_backward(share, result.logits, wanted, loss, kIgnore), ids, result, *shard.grads);
  };
  parallel_for(pieces, threads > 0 ? threads : default_threads(), learn);
  double loss = 0;
  const std::vector<NamedParameter> sums = grads.parameters();
  for (Shard& shard : shards) {
    loss += shard.loss_share;
    copy_or_add(shard.grads->parameters(), sums, &shard == shards.data());
    shard.grads.reset();
  }
  return loss;
}

std::vector<NamedParameter> LanguageModel::parameters() {
  std::vector<NamedParameter> all;
  detail::append_parameters(all, "token_embedding", token_embedding);
  detail::append_parameters(all, "positions", positions);
  for (std::size_t i = 0; i < blocks.size(); ++i)
    detail::append_parameters(all, "blocks." + std::to_string(i), blocks[i]);
  detail::append_parameters(all, "norm", norm);
  detail::append_parameters(all, "unembedding", unembedding);
  return all;
}

}  // namespace heed::nn
