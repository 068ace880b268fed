// Probabilities of tokens, from hidden states.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "heed/model_cause.hpp"

namespace heed::detail {

/// Of one row of logits, in f64.
[[nodiscard]] std::vector<double> probabilities_of(std::span<const float> logits);

/// The tokens of the largest values, the largest first; of equal ones the lower token first.
[[nodiscard]] std::vector<std::int64_t> largest_of(std::span<const double> values, std::int64_t count);

/// Mean over the rows of hidden [L, D] but the last of -log p(ids of the next row), nats. Logits are made for
/// a piece of the rows at a time. NaN for one row.
[[nodiscard]] double mean_loss(const Model& model, const Tensor& hidden, std::span<const std::int64_t> ids,
                               int threads);

/// options.row, or the last of the tokens. Throws Error (invalid_argument) for another than there is.
[[nodiscard]] std::int64_t checked_row(const CauseOptions& options, const TensorView& tokens);
/// Throws Error (invalid_argument) for options.token or options.top that the model does not have.
void check_tokens(const CauseOptions& options, const ModelInfo& info);

/// Tokens as Model has checked them.
[[nodiscard]] std::vector<std::int64_t> ids_of(const TensorView& tokens);

}  // namespace heed::detail
