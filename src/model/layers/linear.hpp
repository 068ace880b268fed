// Products with weights, read in place.
#pragma once

#include "heed/tensor.hpp"
#include "model/files/weights.hpp"

namespace heed::detail {

/// y = x W^T + b.
struct LinearWeights {
  WeightMatrix weight;      ///< [N, K]; if transposed, [K, N]
  Tensor bias;              ///< [N], or empty
  bool transposed = false;  ///< true for GPT-2
  [[nodiscard]] std::int64_t outputs() const { return transposed ? weight.columns : weight.rows; }
  [[nodiscard]] std::int64_t inputs() const { return transposed ? weight.rows : weight.columns; }
};

/// `name`.weight [outputs, inputs] and, where `bias`, `name`.bias [outputs].
[[nodiscard]] LinearWeights linear_weights(Weights& weights, const std::string& name, std::int64_t outputs,
                                           std::int64_t inputs, bool bias);

/// x [R, K], rows contiguous → [R, N], f32. The same bits for every number of threads.
[[nodiscard]] Tensor linear(const TensorView& x, const LinearWeights& weights, int threads);

/// W^T in f32, [K, N].
[[nodiscard]] Tensor inputs_by_outputs(const LinearWeights& weights, int threads);

}  // namespace heed::detail
