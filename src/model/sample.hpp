// Drawing tokens from what a model expects next.
#pragma once

#include <cstdint>
#include <span>

#include "heed/model_generate.hpp"
#include "heed/random.hpp"

namespace heed::detail {

/// A token drawn as the options say. Equal logits are in order of their tokens. Throws Error (internal) where
/// a logit is not a number.
[[nodiscard]] std::int64_t sample(std::span<const float> logits, const GenerateOptions& options,
                                  Generator& generator);

}  // namespace heed::detail
