// Ablated and patched heads: two runs, and their differences.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/largest.hpp"
#include "core/message.hpp"
#include "model/predictions.hpp"

namespace heed {
namespace {

using detail::refuse;

void check_heads(std::span<const ModelHead> heads, const ModelInfo& info) {
  if (heads.empty()) refuse("heads is empty; at least one is expected");
  for (std::size_t i = 0; i < heads.size(); ++i) {
    const auto [layer, head] = heads[i];
    if (layer < 0 || layer >= info.layers || head < 0 || head >= info.heads)
      refuse("heads[", i, "] is ", layer, ".", head, "; layer 0 to ", info.layers - 1, " and head 0 to ",
             info.heads - 1, " are expected");
  }
}

// Calls change(i, output [L, d]) for each chosen head heads[i] when the model reaches it.
template <class Change>
ModelHooks on_heads(std::span<const ModelHead> heads, Change change) {
  ModelHooks hooks;
  hooks.heads = [heads, change](std::int64_t layer, const MutableTensorView& outputs) {
    for (std::size_t i = 0; i < heads.size(); ++i)
      if (heads[i].layer == layer) change(i, outputs.select(1, heads[i].head));
  };
  return hooks;
}

void set_to_zero(const MutableTensorView& output) {
  const float zero = 0;
  copy(TensorView(&zero, output.shape(), {0, 0}), output);
}

void set_to_mean(const MutableTensorView& output) {
  const std::int64_t rows = output.size(0), size = output.size(1);
  std::vector<double> sum(static_cast<std::size_t>(size));
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t i = 0; i < size; ++i)
      sum[static_cast<std::size_t>(i)] += output.data_as<float>()[row * output.strides()[0] + i];
  std::vector<float> mean(sum.size());
  std::ranges::transform(sum, mean.begin(),
                         [&](double one) { return static_cast<float>(one / static_cast<double>(rows)); });
  copy(TensorView(mean.data(), output.shape(), {0, 1}), output);
}

double moved_by(const Tensor& before, const Tensor& after) {
  const std::int64_t rows = before.size(0), size = before.size(1);
  const float* a = before.values<float>().data();
  const float* b = after.values<float>().data();
  double sum = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    double squares = 0, change = 0;
    for (std::int64_t i = row * size; i < (row + 1) * size; ++i) {
      const double was = a[i], by = static_cast<double>(b[i]) - was;
      squares += was * was;
      change += by * by;
    }
    if (change != 0) sum += std::sqrt(change / squares);
  }
  return sum / static_cast<double>(rows);
}

std::vector<double> predicted_at(const Model& model, const Tensor& hidden, const CauseOptions& options,
                                 std::int64_t row) {
  const Tensor logits = model.logits(hidden.view().narrow(0, row, 1), options.threads);
  return detail::probabilities_of(logits.values<float>());
}

void compare_predictions(Effect& effect, const std::vector<double>& before, const std::vector<double>& after,
                         const CauseOptions& options) {
  std::vector<std::int64_t> tokens = detail::largest_of(before, options.top);
  const auto add = [&](std::int64_t token) {
    if (std::ranges::find(tokens, token) == tokens.end()) tokens.push_back(token);
  };
  for (const std::int64_t token : detail::largest_of(after, options.top)) add(token);
  if (options.token) add(*options.token);
  const auto at = [](const std::vector<double>& all, std::int64_t token) {
    return all[static_cast<std::size_t>(token)];
  };
  std::ranges::stable_sort(tokens, std::ranges::greater(),
                           [&](std::int64_t token) { return at(before, token); });
  for (const std::int64_t token : tokens)
    effect.tokens.push_back({token, at(before, token), at(after, token)});
  for (std::size_t i = 0; i < before.size(); ++i)
    if (before[i] != 0) effect.divergence += before[i] * std::log(before[i] / after[i]);
}

Effect effect_of(const Model& model, const TensorView& tokens, const ModelHooks& hooks,
                 const CauseOptions& options) {
  Effect effect;
  effect.row = detail::checked_row(options, tokens);
  const Tensor before = model.hidden_states(tokens, {}, options.threads);
  const Tensor after = model.hidden_states(tokens, hooks, options.threads);
  effect.moved = moved_by(before, after);
  effect.predicts = model.info().predicts && model.info().causal;
  if (!effect.predicts) return effect;
  compare_predictions(effect, predicted_at(model, before, options, effect.row),
                      predicted_at(model, after, options, effect.row), options);
  const std::vector<std::int64_t> ids = detail::ids_of(tokens);
  effect.loss_before = detail::mean_loss(model, before, ids, options.threads);
  effect.loss_after = detail::mean_loss(model, after, ids, options.threads);
  return effect;
}

}  // namespace

Effect ablate(const Model& model, const TensorView& tokens, std::span<const ModelHead> heads, Ablation to,
              const CauseOptions& options) {
  check_heads(heads, model.info());
  detail::check_listed("to", to, Ablation::mean);
  detail::check_tokens(options, model.info());
  const ModelHooks hooks = on_heads(heads, [to](std::size_t /*i*/, const MutableTensorView& output) {
    to == Ablation::zero ? set_to_zero(output) : set_to_mean(output);
  });
  return effect_of(model, tokens, hooks, options);
}

Effect patch(const Model& model, const TensorView& tokens, const TensorView& other,
             std::span<const ModelHead> heads, const CauseOptions& options) {
  check_heads(heads, model.info());
  detail::check_tokens(options, model.info());
  if (tokens.rank() == 1 && other.rank() == 1 && tokens.size(0) != other.size(0))
    refuse("the length of other is ", other.size(0), "; ", tokens.size(0),
           ", the length of tokens, is expected");
  std::vector<Tensor> outputs(heads.size());
  const ModelHooks keep = on_heads(heads, [&outputs](std::size_t i, const MutableTensorView& output) {
    outputs[i] = Tensor::copy_of(output);
  });
  (void)model.hidden_states(other, keep, options.threads);
  const ModelHooks hooks = on_heads(
      heads, [&outputs](std::size_t i, const MutableTensorView& output) { copy(outputs[i], output); });
  return effect_of(model, tokens, hooks, options);
}

}  // namespace heed
