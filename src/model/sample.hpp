// Drawing tokens from a model's prediction.
#pragma once

#include <cstdint>
#include <span>

#include "heed/model/generate.hpp"
#include "heed/random.hpp"

namespace heed::detail {

/// Divides the positive logits of these tokens by the penalty, and multiplies the negative ones (Keskar et
/// al. 2019).
void penalise(std::span<float> logits, std::span<const std::int64_t> ids, double penalty);

/// Sets the logits of these tokens to -inf. Throws Error (invalid_argument) if no others are left.
void forbid(std::span<float> logits, std::span<const std::int64_t> ids);

/// Throws Error (internal) if a logit is not finite.
void check_logits(std::span<const float> logits);

/// Draws a token by the options, never one of logit -inf. Equal logits are ordered by token.
[[nodiscard]] std::int64_t sample(std::span<const float> logits, const GenerateOptions& options,
                                  Generator& generator);

}  // namespace heed::detail
