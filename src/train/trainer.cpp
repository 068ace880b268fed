#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "core/message.hpp"
#include "heed/error.hpp"
#include "heed/nn/train.hpp"
#include "train/data.hpp"
#include "train/settings.hpp"

namespace heed {
namespace {

constexpr double kKept = 0.95;  // weight of the old running mean at each step

std::string loss_text(double loss) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.4g", loss);
  return text.data();
}

// 1, 2, 5, 10, 20, 50, …
bool is_mark(std::int64_t step) {
  while (step % 10 == 0) step /= 10;
  return step == 1 || step == 2 || step == 5;
}

// An older checkpoint may have a warmup longer than its steps.
nn::Schedule schedule_of(const TrainSettings& settings) {
  return {.peak = settings.learning_rate,
          .last = 0,
          .warmup = std::min(settings.warmup, settings.steps),
          .steps = settings.steps};
}

// Uniform probabilities lose ln V. A loss above twice that, plus 3, means that numbers diverge.
double diverging_loss(std::int64_t vocabulary) { return 2 * std::log(static_cast<double>(vocabulary)) + 3; }

void require_sound(const TrainState& state, double loss, double length) {
  const std::string at = " at step " + std::to_string(state.step + 1);
  if (!std::isfinite(loss)) detail::refuse(ErrorCode::internal, "the loss is not a number", at);
  if (!std::isfinite(length)) detail::refuse(ErrorCode::internal, "the gradients are not numbers", at);
  if (const double most = diverging_loss(state.trained.model.config.vocabulary); !(state.smooth_loss <= most))
    detail::refuse(ErrorCode::internal, "the loss, ", loss_text(state.smooth_loss), at,
                   ", is far above the loss of random guessing");
}

void mark(TrainState& state, double loss) {
  state.sum_since_mark += loss;
  if (!is_mark(state.step) && state.step != state.trained.settings.steps) return;
  const std::int64_t since = state.marks.empty() ? 0 : state.marks.back().first;
  state.marks.emplace_back(state.step, state.sum_since_mark / static_cast<double>(state.step - since));
  state.sum_since_mark = 0;
}

}  // namespace

TrainState begin_training(const TrainSettings& settings, const TrainData& data) {
  check(settings);
  detail::require_enough(data, settings);
  Generator generator(static_cast<std::uint64_t>(settings.seed));
  nn::LanguageModel model(detail::model_config(settings, data.tokenizer.size()), generator);
  nn::AdamW optimizer(model.parameters(), {.weight_decay = settings.weight_decay});
  nn::LanguageModel gradients = zeros_like(model);
  return {{settings, data.tokenizer, std::move(model)},
          data.fingerprint,
          generator,
          std::move(optimizer),
          std::move(gradients)};
}

void train_step(TrainState& state, const TrainData& data, int threads, const TrainRanks& ranks) {
  auto& [settings, tokenizer, model] = state.trained;
  const detail::Batch batch = detail::draw_batch(data, settings, state.generator);
  const double loss = ranks.loss_and_gradients(model, batch.tokens, batch.targets, state.gradients, threads);
  const double length = nn::clip_gradients(state.gradients.parameters(), settings.clip);
  state.smooth_loss = state.step == 0 ? loss : kKept * state.smooth_loss + (1 - kKept) * loss;
  require_sound(state, loss, length);
  state.optimizer.step(model.parameters(), state.gradients.parameters(),
                       schedule_of(settings).rate(state.step));
  ++state.step;
  mark(state, loss);
}

}  // namespace heed
