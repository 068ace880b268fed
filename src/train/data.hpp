// Batches: drawn from a text, or made of random symbols that repeat.
#pragma once

#include "heed/train.hpp"

namespace heed::detail {

struct Batch {
  Tensor tokens;   ///< i64 [batch, context]
  Tensor targets;  ///< the same shape: what comes next, or LanguageModel::kIgnore
};

/// A batch drawn with the generator. Of a text: sequences from anywhere in it. Of the induction task: for
/// each sequence a period from 2 to half the context, as many symbols drawn at random, and these over and
/// over. Every place from the second round on is learnt from: what comes next there stood in the first round.
/// Periods vary, for a fixed one could be learnt by counting places.
[[nodiscard]] Batch draw_batch(const TrainData& data, const TrainSettings& settings, Generator& generator);

/// Throws Error (invalid_argument) for a text that is not longer than the context.
void require_enough(const TrainData& data, const TrainSettings& settings);

}  // namespace heed::detail
