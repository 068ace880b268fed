// Runs a model's layers one after another; hooks may observe and change them.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/message.hpp"
#include "core/tensor/recycled_blocks.hpp"
#include "heed/parallel.hpp"
#include "model/parts.hpp"

namespace heed {
namespace {

using namespace detail;

std::vector<std::int64_t> checked_ids(const TensorView& tokens, const ModelInfo& info, std::int64_t begin) {
  if (tokens.rank() != 1 || (tokens.dtype() != DType::i64 && tokens.dtype() != DType::i32))
    refuse("tokens is ", tokens.dtype(), " ", tokens.shape(), "; i64 or i32 of shape [L] is expected");
  const Tensor copy = Tensor::copy_of(tokens, DType::i64);
  const auto ids = copy.values<std::int64_t>();
  if (ids.empty()) refuse("tokens is empty; at least one is expected");
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= info.vocabulary)
      refuse("tokens[", i, "] is ", ids[i], "; 0 to ", info.vocabulary - 1, " is expected");
  const std::int64_t length = begin + std::ssize(ids);
  if (info.fixed_context && length > info.context)
    refuse("tokens has length ", length, "; at most ", info.context,
           ", the context of the model, is expected");
  return {ids.begin(), ids.end()};
}

// Empty if one of the ids has no text of its own. A symbol's text depends on the whole text.
std::vector<std::string> shown_without_text(const ModelParts& parts, const std::vector<std::int64_t>& ids) {
  std::vector<std::string> shown;
  if (const auto& own = parts.own_tokenizer; own && !own->is_symbols())
    for (const std::int64_t id : ids) shown.push_back(own->text_of(id, {}));
  const auto is_token = [&](std::int64_t id) { return parts.tokenizer->token(id).has_value(); };
  if (parts.tokenizer && std::ranges::all_of(ids, is_token)) shown = parts.tokenizer->shown(ids);
  return shown;
}

// The outputs of a layer's heads, [L, H d].
Tensor attend(const ModelParts& parts, const LayerCall& call, const ModelHooks& hooks) {
  const ModelInfo& info = parts.info;
  const std::int64_t rows = call.query.size(1);
  Tensor heads = Tensor::uninitialized({rows, info.heads, info.head_dim}, DType::f32);
  const MutableTensorView by_head = heads.mutable_view().transpose(0, 1);
  if (hooks.attend) {
    const Tensor output = hooks.attend(call);
    const TensorView view = output.rank() == 4 ? output.view().select(0, 0) : output.view();
    if (view.shape() != by_head.shape())
      refuse("attend gave an output of shape ", output.shape(), "; ", by_head.shape(), " is expected");
    parallel_for(info.heads, call.options.threads,
                 [&](std::int64_t h, int /*worker*/) { copy(view.select(0, h), by_head.select(0, h)); });
  } else if (call.cache != nullptr) {
    copy(attention(call.query.unsqueeze(0), *call.cache, call.options).output.view().select(0, 0), by_head);
  } else {
    AttentionOutputs outputs;
    outputs.output = by_head;
    attention_into(call.query, call.key, call.value, call.options, outputs);
  }
  if (hooks.heads) hooks.heads(call.layer, heads);
  return std::move(heads).reshaped({rows, info.heads * info.head_dim});
}

// Capacity grows by doubling.
void append(KvCache& cache, const Projected& made) {
  const std::int64_t rows = cache.length(0) + made.key.size(1), capacity = cache.stats().capacity;
  if (rows > capacity) cache.reserve(std::max(rows, 2 * capacity));
  cache.append(made.key.unsqueeze(0), made.value.unsqueeze(0));
}

// The caller may have passed the cache of another model.
void check_fits(const ModelInfo& info, const std::vector<KvCache>& caches) {
  if (std::ssize(caches) != info.layers)
    refuse("cache has ", counted(caches.size(), "layer"), "; ", info.layers,
           ", as in the model, are expected");
  for (const KvCache& cache : caches) {
    if (cache.sequences() != 1 || cache.layout() != CacheLayout::contiguous ||
        cache.kv_heads() != info.kv_heads || cache.head_dim() != info.head_dim ||
        cache.value_dim() != info.head_dim)
      refuse("cache has ", counted(cache.sequences(), "sequence"), ", ", counted(cache.kv_heads(), "head"),
             " and head_dim ", cache.head_dim(), "; 1, ", info.kv_heads, " and ", info.head_dim,
             ", as in the model, are expected");
    if (cache.length(0) != caches.front().length(0))
      refuse("layers of the cache hold ", caches.front().length(0), " and ", cache.length(0),
             " tokens; equal numbers are expected");
  }
}

Tensor run(const ModelParts& parts, const TensorView& tokens, std::vector<KvCache>* caches,
           const ModelHooks& hooks, int threads) {
  const Family& family = *parts.family;
  if (caches != nullptr) check_fits(parts.info, *caches);
  const std::int64_t begin = caches == nullptr ? 0 : caches->front().length(0);
  const std::vector<std::int64_t> ids = checked_ids(tokens, parts.info, begin);
  const std::int64_t length = begin + std::ssize(ids);
  if (const auto turning = family.turning_length();
      turning && begin > 0 && begin <= *turning && length > *turning)
    refuse("cache has ", counted(begin, "token"), " of a text of ", length, "; all keys of texts beyond ",
           *turning, " tokens are others, so a cache with all tokens of the text is expected");
  if (threads == 0) threads = default_threads();
  const detail::RecycledBlocks recycled;
  Tensor stream = family.embed(ids, begin, threads);
  for (std::int64_t layer = 0; layer < parts.info.layers; ++layer) {
    if (hooks.stream) hooks.stream(layer, stream);
    Projected made = family.project(layer, stream, begin, threads);
    made.options.threads = threads;
    LayerCall call{layer, made.query, made.key, made.value, made.options, nullptr};
    if (caches != nullptr) {
      KvCache& cache = (*caches)[static_cast<std::size_t>(layer)];
      append(cache, made);
      call.cache = &cache;
    }
    const Tensor heads = attend(parts, call, hooks);
    made = {};  // frees memory before the MLP needs as much
    family.finish(layer, heads, stream, threads);
  }
  if (hooks.stream) hooks.stream(parts.info.layers, stream);
  return family.last_norm(stream, threads);
}

}  // namespace

ModelCache::ModelCache(const ModelInfo& info, CacheFormat format) {
  if (!info.causal) refuse("a model of family '", info.family, "' reads whole texts and has no cache");
  constexpr std::int64_t kFirstRoom = 64;
  for (std::int64_t layer = 0; layer < info.layers; ++layer)
    layers_.emplace_back(KvCacheOptions{
        .kv_heads = info.kv_heads, .head_dim = info.head_dim, .format = format, .capacity = kFirstRoom});
}

std::int64_t ModelCache::length() const { return layers_.empty() ? 0 : layers_.front().length(0); }

void ModelCache::clear() {
  for (KvCache& cache : layers_) cache.clear(0);
}

ModelCache ModelCache::copy() const {
  std::vector<KvCache> layers;
  for (const KvCache& cache : layers_) layers.push_back(cache.copy());
  return ModelCache(std::move(layers));
}

Tensor Model::hidden_states(const TensorView& tokens, const ModelHooks& hooks, int threads) const {
  return run(*parts_, tokens, nullptr, hooks, threads);
}

Tensor Model::hidden_states(const TensorView& tokens, ModelCache& cache, const ModelHooks& hooks,
                            int threads) const {
  return run(*parts_, tokens, &cache.layers_, hooks, threads);
}

ModelTokens Model::tokens_of(const TensorView& ids) const {
  ModelTokens made;
  made.ids = checked_ids(ids, info(), 0);
  made.shown = shown_without_text(*parts_, made.ids);
  return made;
}

Tensor Model::logits(const TensorView& hidden, int threads) const {
  const ModelInfo& info = parts_->info;
  if (!info.predicts)
    refuse("a model of family '", info.family, "' without a language-model head has no logits");
  if (hidden.rank() != 2 || hidden.dtype() != DType::f32 || hidden.size(1) != info.model_dim)
    refuse("hidden is ", hidden.dtype(), " ", hidden.shape(), "; f32 [R, ", info.model_dim, "] is expected");
  const Tensor rows = Tensor::copy_of(hidden);
  return parts_->family->logits(rows, threads == 0 ? default_threads() : threads);
}

}  // namespace heed
