// Drawing tokens from what a model expects next.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "heed/random.hpp"
#include "heed/transformer.hpp"

namespace heed::cli {

struct SamplingOptions {
  double temperature = 1;  ///< at least 0; logits are divided by it, 0 takes the largest
  std::int64_t top_k = 0;  ///< only the K largest logits; 0: all
};

/// A token drawn from softmax(logits / temperature). Equal logits are in order of their tokens. Throws Error
/// (internal) where a logit is not a number.
[[nodiscard]] std::int64_t sample(std::span<const float> logits, const SamplingOptions& options,
                                  Generator& generator);

/// Goes on from `prompt` (i64 [L], or none: token 0 is then the first one given), `count` tokens; the model
/// sees as many of the last tokens as its context holds.
void generate(const nn::LanguageModel& model, const Tensor& prompt, std::int64_t count,
              const SamplingOptions& options, Generator& generator,
              const std::function<void(std::int64_t)>& add);

}  // namespace heed::cli
