#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "heed/nn/transformer.hpp"
#include "heed/parallel.hpp"
#include "nn/attention_layer.hpp"
#include "nn/checks.hpp"
#include "nn/elements.hpp"

namespace heed::nn {
namespace {

constexpr double kDeviation = 0.02;
constexpr std::int64_t kMlpFactor = 4;
// Larger sizes are a mistake or a hostile file, not a small language model. No product of two or three of
// them overflows.
constexpr std::int64_t kMaxVocabulary = 1'000'000;
constexpr std::int64_t kMaxContext = 1'000'000;
constexpr std::int64_t kMaxLayers = 1000;
constexpr std::int64_t kMaxDim = 100'000;

void require_between(std::int64_t size, const char* name, std::int64_t most) {
  if (size < 1 || size > most)
    detail::refuse(name, " is ", size, "; a number from 1 to ", most, " is expected");
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

// Replaces a layer's own initial parameters by GPT-2's.
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

void copy_or_add(const std::vector<NamedParameter>& from, const std::vector<NamedParameter>& to, bool first) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (first)
      *to[i].value = *from[i].value;
    else
      detail::add(*from[i].value, *to[i].value);
  }
}

}  // namespace

std::int64_t count_targets(const TensorView& targets) {
  const Tensor whole = Tensor::copy_of(targets, DType::i64);
  const auto values = whole.values<std::int64_t>();
  return std::ssize(values) - std::ranges::count(values, LanguageModel::kIgnore);
}

void check(const LanguageModelConfig& config) {
  require_between(config.vocabulary, "vocabulary", kMaxVocabulary);
  require_between(config.context, "context", kMaxContext);
  require_between(config.layers, "layers", kMaxLayers);
  require_between(config.model_dim, "model_dim", kMaxDim);
  require_between(config.heads, "heads", config.model_dim);
  if (config.model_dim % config.heads != 0)
    detail::refuse("model_dim is ", config.model_dim, "; a multiple of the ", config.heads,
                   " heads is expected");
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

LanguageModelResult LanguageModel::forward(const TensorView& tokens, const AttentionOptions& options,
                                           const SequenceShare& share) const {
  if ((tokens.rank() != 1 && tokens.rank() != 2) || tokens.shape().back() > config.context)
    detail::refuse("tokens has shape ", tokens.shape(), "; [L] or [B, L] is expected, L at most ",
                   config.context);
  LanguageModelResult result;
  result.embedded = positions.forward(token_embedding.forward(tokens), share.places);
  TensorView stream = result.embedded;
  for (const TransformerBlock& block : blocks) {
    result.blocks.push_back(block.forward(stream, options, share.attention));
    stream = result.blocks.back().output;
  }
  result.norm = norm.forward(stream);
  result.logits = unembedding.forward(result.norm.output);
  return result;
}

void LanguageModel::backward(const TensorView& grad_logits, const TensorView& tokens,
                             const LanguageModelResult& result, LanguageModel& grads,
                             const SequenceShare& share) const {
  if (result.blocks.size() != blocks.size() || grads.blocks.size() != blocks.size())
    detail::refuse("result and grads have ", result.blocks.size(), " and ", grads.blocks.size(),
                   " blocks; the model's ", blocks.size(), " are expected");
  Tensor grad = unembedding.backward(grad_logits, result.norm.output, grads.unembedding);
  grad = norm.backward(grad, result.norm, grads.norm);
  for (std::size_t i = blocks.size(); i-- > 0;)
    grad = blocks[i].backward(grad, result.blocks[i], grads.blocks[i], share.attention);
  positions.backward(grad, grads.positions, share.places);
  token_embedding.backward(grad, tokens, grads.token_embedding);
}

LossPiece LanguageModel::loss_piece(const TensorView& tokens, const TensorView& targets, std::int64_t count,
                                    const SequenceShare& share) const {
  const LanguageModelResult result = forward(tokens, {.threads = 1}, share);
  const CrossEntropyResult loss = cross_entropy(result.logits, targets, kIgnore);
  const double part = count > 0 ? static_cast<double>(loss.count) / static_cast<double>(count) : 0;
  LossPiece piece{loss.loss * part, zeros_like(*this)};
  const Tensor grad_logits = cross_entropy_backward(part, result.logits, targets, loss, kIgnore);
  backward(grad_logits, tokens, result, piece.gradients, share);
  return piece;
}

std::vector<LossPiece> LanguageModel::loss_pieces(const TensorView& tokens, const TensorView& targets,
                                                  std::int64_t pieces, std::int64_t begin, std::int64_t end,
                                                  int threads) const {
  if (tokens.rank() != 2 || targets.shape() != tokens.shape() || tokens.count() == 0)
    detail::refuse("tokens and targets have the shapes ", tokens.shape(), " and ", targets.shape(),
                   "; the same non-empty shape [B, L] is expected for both");
  const std::int64_t batch = tokens.shape()[0];
  if (pieces < 1 || pieces > batch || begin < 0 || begin > end || end > pieces)
    detail::refuse("begin, end and pieces are ", begin, ", ", end, " and ", pieces,
                   "; begin <= end <= pieces, from 0 to the batch of ", batch, ", is expected");
  const std::int64_t count = count_targets(targets);
  std::vector<std::optional<LossPiece>> made(static_cast<std::size_t>(end - begin));
  parallel_for(end - begin, threads > 0 ? threads : default_threads(), [&](std::int64_t index, int) {
    const std::int64_t first = (begin + index) * batch / pieces;
    const std::int64_t length = (begin + index + 1) * batch / pieces - first;
    made[static_cast<std::size_t>(index)] =
        loss_piece(tokens.narrow(0, first, length), targets.narrow(0, first, length), count);
  });
  std::vector<LossPiece> result;
  for (std::optional<LossPiece>& piece : made) result.push_back(std::move(*piece));
  return result;
}

double LanguageModel::loss_and_gradients(const TensorView& tokens, const TensorView& targets,
                                         LanguageModel& grads, int threads) const {
  const std::int64_t pieces = tokens.rank() == 2 ? std::min(tokens.shape()[0], kShards) : 0;
  double loss = 0;
  bool first = true;
  for (LossPiece& piece : loss_pieces(tokens, targets, pieces, 0, pieces, threads)) {
    loss += piece.loss;
    copy_or_add(piece.gradients.parameters(), grads.parameters(), first);
    first = false;
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
