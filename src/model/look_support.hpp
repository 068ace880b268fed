// Shared parts of reports on a text.
//
// Weights of keys by the norm of the vectors that they add: softmax(s_ij + log n_j) has the weights p_ij n_j
// / m_i.
#pragma once

#include <cstdint>
#include <optional>

#include "heed/attention/attention.hpp"
#include "heed/model/model.hpp"
#include "heed/tensor.hpp"

namespace heed::detail {

/// norms [H, L] → their logarithms, at least log 1e-30, as a bias [1, H, 1, L].
[[nodiscard]] Tensor log_norms(const Tensor& norms);

/// Adds the bias, which must outlive the options. Throws Error (invalid_argument) if they already have a
/// bias.
void weigh_by(const Tensor& bias, AttentionOptions& options);

/// Throws Error (invalid_argument) if the model does not have the layer, or the head.
void check_layer(const std::optional<std::int64_t>& layer, const ModelInfo& info);
void check_head(const ModelHead& head, const ModelInfo& info);

}  // namespace heed::detail
