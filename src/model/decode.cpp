#include "model/decode.hpp"

#include <algorithm>

#include "nn/elements.hpp"

namespace heed::detail {
namespace {

// x [1, L, dim]: the rows that come after those in the cache.
Tensor attend(const nn::TransformerBlock& block, const TensorView& x, std::int64_t heads, KvCache& cache) {
  const nn::MultiHeadAttention& layer = block.attention;
  const Tensor normed = block.attention_norm.forward(x).output;
  const Tensor query = nn::split_heads(layer.query.forward(normed), heads);
  cache.append(nn::split_heads(layer.key.forward(normed), heads),
               nn::split_heads(layer.value.forward(normed), heads));
  const Tensor output = attention(query, cache, {.causal = true}).output;
  return layer.out_proj->forward(nn::merge_heads(output));
}

Tensor run_block(const nn::TransformerBlock& block, const TensorView& x, std::int64_t heads, KvCache& cache) {
  Tensor stream = nn::detail::sum(x, attend(block, x, heads, cache));
  if (!block.mlp) return stream;
  return nn::detail::sum(stream, block.mlp->forward(block.mlp_norm->forward(stream).output).output);
}

}  // namespace

Decoder::Decoder(const nn::LanguageModel& model, CacheFormat format) : model_(model) {
  const nn::LanguageModelConfig& config = model.config;
  for (std::int64_t layer = 0; layer < config.layers; ++layer)
    caches_.emplace_back(KvCacheOptions{.kv_heads = config.heads,
                                        .head_dim = config.model_dim / config.heads,
                                        .format = format,
                                        .capacity = config.context});
}

Tensor Decoder::next(std::span<const std::int64_t> ids) {
  const std::size_t seen = std::min(ids.size(), static_cast<std::size_t>(model_.config.context));
  const std::size_t begin = ids.size() - seen;
  if (begin != begin_)
    for (KvCache& cache : caches_) cache.clear(0);
  begin_ = begin;
  return read(ids.subspan(begin + static_cast<std::size_t>(caches_.front().length(0))));
}

Tensor Decoder::read(std::span<const std::int64_t> ids) {
  const auto count = static_cast<std::int64_t>(ids.size());
  const TensorView tokens(ids.data(), {1, count});
  const Tensor embedded = model_.token_embedding.forward(tokens);
  const TensorView places = model_.positions.weight.view().narrow(0, caches_.front().length(0), count);
  Tensor stream = nn::detail::sum(embedded, places.unsqueeze(0));
  for (std::size_t layer = 0; layer < caches_.size(); ++layer)
    stream = run_block(model_.blocks[layer], stream, model_.config.heads, caches_[layer]);
  const TensorView last = stream.view().select(0, 0).narrow(0, count - 1, 1);
  const Tensor logits = model_.unembedding.forward(model_.norm.forward(last).output);
  return Tensor::copy_of(logits.view().select(0, 0));
}

}  // namespace heed::detail
