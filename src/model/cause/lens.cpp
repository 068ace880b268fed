// The logit lens.
#include "core/largest.hpp"
#include "core/message.hpp"
#include "heed/parallel.hpp"
#include "model/cause/row_trace.hpp"
#include "model/parts.hpp"
#include "model/predictions.hpp"

namespace heed {
namespace {

LensLayer lens_layer_of(const std::vector<double>& chances, std::int64_t token, std::int64_t top) {
  LensLayer layer;
  for (const std::int64_t one : detail::largest_of(chances, top))
    layer.top.push_back({one, chances[static_cast<std::size_t>(one)]});
  layer.probability = chances[static_cast<std::size_t>(token)];
  for (std::int64_t i = 0; i < std::ssize(chances); ++i) {
    const double one = chances[static_cast<std::size_t>(i)];
    layer.rank += one > layer.probability || (one == layer.probability && i < token) ? 1 : 0;
  }
  return layer;
}

}  // namespace

Lens lens(const Model& model, const TensorView& tokens, const CauseOptions& options) {
  const ModelInfo& info = model.info();
  if (!info.predicts)
    detail::refuse("a model of family '", info.family,
                   "' without a language-model head cannot predict tokens");
  detail::check_tokens(options, info);
  Lens made;
  made.row = detail::checked_row(options, tokens);
  const int threads = options.threads == 0 ? default_threads() : options.threads;
  const Tensor streams = detail::trace_row(model, tokens, made.row, threads).streams;
  const Tensor logits = model.logits(model.parts().family->last_norm(streams, threads), threads);
  const auto chances_at = [&](std::int64_t layer) {
    return detail::probabilities_of(logits.values<float>().subspan(
        static_cast<std::size_t>(layer * info.vocabulary), static_cast<std::size_t>(info.vocabulary)));
  };
  made.token = options.token.value_or(detail::largest_of(chances_at(info.layers), 1).front());
  for (std::int64_t layer = 0; layer <= info.layers; ++layer)
    made.layers.push_back(lens_layer_of(chances_at(layer), made.token, options.top));
  return made;
}

}  // namespace heed
