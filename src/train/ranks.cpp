#include "heed/nn/train_ranks.hpp"

namespace heed {

TrainRanks::~TrainRanks() = default;

void TrainRanks::each(const std::function<void()>& work) const { work(); }
void TrainRanks::once(const std::function<void()>& work) const { work(); }
bool TrainRanks::any(bool own) const { return own; }
void TrainRanks::require_same(TrainState&) const {}
void TrainRanks::require_same(const TrainOptions&) const {}

double TrainRanks::loss_and_gradients(const nn::LanguageModel& model, const TensorView& tokens,
                                      const TensorView& targets, nn::LanguageModel& gradients,
                                      int threads) const {
  return model.loss_and_gradients(tokens, targets, gradients, threads);
}

}  // namespace heed
