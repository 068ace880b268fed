// The path of one token through a model.
#include "heed/model/walk.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "core/message.hpp"
#include "heed/parallel.hpp"
#include "model/layers/linear.hpp"
#include "model/parts.hpp"
#include "model/watched.hpp"

namespace heed {
namespace {

double length_of(std::span<const float> x) {
  double sum = 0;
  for (const float one : x) sum += static_cast<double>(one) * static_cast<double>(one);
  return std::sqrt(sum);
}

// The contribution of a layer's heads with outputs [1, H d] to the stream, [D].
std::vector<float> added_by_heads(const detail::Family& family, std::int64_t layer, const Tensor& heads,
                                  int threads) {
  const Tensor product = detail::linear(heads, family.output_projection(layer), threads);
  const auto values = product.values<float>();
  std::vector<float> added(values.begin(), values.end());
  const auto norm = family.norm_behind_attention(layer, added);
  if (!norm) return added;
  std::vector<double> x(added.begin(), added.end());
  detail::apply_held(*norm, x);
  for (std::size_t i = 0; i < added.size(); ++i)
    added[i] = static_cast<float>(x[i] + (norm->bias.empty() ? 0 : norm->bias[i]));
  return added;
}

class Walker {
 public:
  Walker(const Model& model, const ModelTokens& text, std::int64_t row, std::int64_t count, int threads)
      : model_(model),
        text_(text),
        row_(row),
        count_(count),
        threads_(threads == 0 ? default_threads() : threads) {
    walk_.row = row;
    walk_.layers.resize(static_cast<std::size_t>(model.info().layers));
  }

  [[nodiscard]] Walk run() {
    ModelHooks hooks;
    hooks.stream = [this](std::int64_t layer, const TensorView& stream) { see_stream(layer, stream); };
    hooks.attend = [this](const LayerCall& call) { return attend(call); };
    hooks.heads = [this](std::int64_t layer, const MutableTensorView& heads) { see_heads(layer, heads); };
    const TensorView ids(text_.ids.data(), {std::ssize(text_.ids)});
    (void)model_.hidden_states(ids, hooks, threads_);
    return std::move(walk_);
  }

 private:
  [[nodiscard]] WalkedLayer& layer_at(std::int64_t layer) {
    return walk_.layers[static_cast<std::size_t>(layer)];
  }

  void see_stream(std::int64_t layer, const TensorView& stream) {
    const Tensor row = Tensor::copy_of(stream.narrow(0, row_, 1));
    const auto values = row.values<float>();
    std::vector<Expectation> predicted;
    if (model_.info().predicts) {
      const Tensor logits = model_.logits(model_.parts().family->last_norm(row, threads_), threads_);
      predicted = expected(model_, logits.view().select(0, 0), text_, count_);
    }
    if (layer > 0) {
      std::vector<float> rest(values.begin(), values.end());
      for (std::size_t i = 0; i < rest.size(); ++i) rest[i] -= before_[i] + added_[i];
      layer_at(layer - 1).rest = length_of(rest);
      layer_at(layer - 1).predicted = std::move(predicted);
    } else {
      walk_.embedded = std::move(predicted);
    }
    (layer < model_.info().layers ? layer_at(layer).stream : walk_.stream) = length_of(values);
    before_.assign(values.begin(), values.end());
  }

  // Attends to the row once more, for its heaviest keys.
  [[nodiscard]] Tensor attend(const LayerCall& call) {
    AttentionOptions options = call.options;
    options.query_offset = row_;
    options.top_k = std::min(count_ + 1, call.key.size(1));
    const auto with_batch = [](const TensorView& x) { return x.unsqueeze(0); };
    std::vector<WatchedPair> pairs;
    detail::add_watched(call.layer,
                        attention(with_batch(call.query.narrow(1, row_, 1)), with_batch(call.key),
                                  with_batch(call.value), options),
                        0, pairs);
    pairs = detail::heaviest(std::move(pairs), std::nullopt, count_);
    for (WatchedPair& pair : pairs) pair.token = text_.shown[static_cast<std::size_t>(pair.place)];
    layer_at(call.layer).attended = std::move(pairs);
    return attention(call.query, call.key, call.value, call.options).output;
  }

  void see_heads(std::int64_t layer, const MutableTensorView& heads) {
    const ModelInfo& info = model_.info();
    const Tensor row =
        Tensor::copy_of(TensorView(heads).narrow(0, row_, 1)).reshaped({1, info.heads * info.head_dim});
    added_ = added_by_heads(*model_.parts().family, layer, row, threads_);
    layer_at(layer).attention = length_of(added_);
  }

  const Model& model_;
  const ModelTokens& text_;
  std::int64_t row_, count_;
  int threads_;
  Walk walk_;
  std::vector<float> before_, added_;  // of the current layer: its stream at the row, and its heads' part
};

}  // namespace

Walk walk(const Model& model, const ModelTokens& text, std::int64_t row, std::int64_t count, int threads) {
  const auto length = std::ssize(text.ids);
  detail::check_range("row", row, 0, length - 1);
  if (count < 1) detail::refuse("count is ", count, "; 1 or more is expected");
  return Walker(model, text, row, count, threads).run();
}

}  // namespace heed
