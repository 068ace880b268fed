// Batches from a text, or of repeating random symbols.
#pragma once

#include "heed/nn/train.hpp"

namespace heed::detail {

struct Batch {
  Tensor tokens;   ///< i64 [batch, context]
  Tensor targets;  ///< the same shape: the next tokens, or LanguageModel::kIgnore
};

/// Draws a batch with the generator. A text gives sequences from anywhere in it. For the induction task, each
/// sequence draws a period from 2 to half the context and as many random symbols, and repeats them. Targets
/// count from the second round on, because the first round shows what follows. Periods vary, because a fixed
/// one could be learnt by counting positions.
[[nodiscard]] Batch draw_batch(const TrainData& data, const TrainSettings& settings, Generator& generator);

/// Throws Error (invalid_argument) if the text is not longer than the context.
void require_enough(const TrainData& data, const TrainSettings& settings);

}  // namespace heed::detail
