// What a model learns from: batches drawn from a text, or made of random symbols that repeat.
#pragma once

#include <string>

#include "heed/random.hpp"
#include "heed/tensor.hpp"
#include "model/settings.hpp"
#include "model/vocabulary.hpp"

namespace heed::cli {

struct Batch {
  Tensor tokens;   ///< i64 [batch, context]
  Tensor targets;  ///< the same shape: what comes next, or LanguageModel::kIgnore
};

/// A source of batches: the text as tokens, or none for the induction task.
struct TrainData {
  ModelVocabulary vocabulary;
  Tensor tokens;  ///< i64 [N]
  std::string
      fingerprint;  ///< tells one text from another: "1234 bytes, 89abcdef01234567"; "" without a text
};

/// Reads the text. Throws Error (io) where it cannot be read or is not UTF-8, UsageError where it is too
/// short for one sequence.
[[nodiscard]] TrainData read_text_data(const std::string& path, const TrainSettings& settings);
[[nodiscard]] TrainData induction_data(const TrainSettings& settings);

/// A batch drawn with the generator. Of a text: sequences from anywhere in it. Of the induction task: for
/// each sequence a period from 2 to half the context, as many symbols drawn at random, and these over and
/// over. Every place from the second round on is learnt from: what comes next there stood in the first round.
/// Periods vary, for a fixed one could be learnt by counting places.
[[nodiscard]] Batch draw_batch(const TrainData& data, const TrainSettings& settings, Generator& generator);

}  // namespace heed::cli
