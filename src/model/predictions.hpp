// Token probabilities from hidden states.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heed/model/cause.hpp"

namespace heed::detail {

/// The softmax of one row of logits, in f64.
[[nodiscard]] std::vector<double> probabilities_of(std::span<const float> logits);

/// The mean of -log p(next token) over all rows of hidden [L, D] except the last, in nats. Logits are
/// computed for some rows at a time. NaN for a single row.
[[nodiscard]] double mean_loss(const Model& model, const Tensor& hidden, std::span<const std::int64_t> ids,
                               int threads);

/// Returns options.row, or the last row. Throws Error (invalid_argument) if the row is out of range.
[[nodiscard]] std::int64_t checked_row(const CauseOptions& options, const TensorView& tokens);
/// Throws Error (invalid_argument) if options.token or options.top is out of the model's range.
void check_tokens(const CauseOptions& options, const ModelInfo& info);

/// The ids of tokens that Model has checked.
[[nodiscard]] std::vector<std::int64_t> ids_of(const TensorView& tokens);

}  // namespace heed::detail
