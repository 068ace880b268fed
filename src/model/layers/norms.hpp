// Norms over the last axis.
#pragma once

#include <span>
#include <variant>
#include <vector>

#include "heed/tensor.hpp"
#include "model/files/weights.hpp"

namespace heed::detail {

/// weight (x - mean) / sqrt(variance + epsilon) + bias (Ba, Kiros, Hinton 2016).
struct LayerNormWeights {
  Tensor weight, bias;  ///< [D]
  double epsilon = 1e-5;
};
/// Reads `name`.weight and, where `bias`, `name`.bias; or `name`.gamma and `name`.beta, as in BERT's first
/// files. Without a bias it is 0.
[[nodiscard]] LayerNormWeights layer_norm_weights(Weights& weights, const std::string& name,
                                                  std::int64_t size, double epsilon, bool bias = true);
/// x [R, D], contiguous → the same shape.
[[nodiscard]] Tensor layer_norm(const TensorView& x, const LayerNormWeights& weights, int threads);

/// (offset + weight) x / sqrt(mean of x^2 + epsilon) (Zhang and Sennrich 2019); offset is 1 for Gemma.
struct RmsNormWeights {
  Tensor weight;  ///< [D], including the offset
  double epsilon = 1e-6;
};
/// Reads `name`.weight.
[[nodiscard]] RmsNormWeights rms_norm_weights(Weights& weights, const std::string& name, std::int64_t size,
                                              double epsilon, float offset = 0);
[[nodiscard]] Tensor rms_norm(const TensorView& x, const RmsNormWeights& weights, int threads);
/// The same in place for vectors [..., d] with any strides except along d, as in queries and keys of heads.
void rms_norm_heads(const MutableTensorView& heads, const RmsNormWeights& weights, int threads);

using NormWeights = std::variant<RmsNormWeights, LayerNormWeights>;
[[nodiscard]] Tensor normed(const TensorView& x, const NormWeights& weights, int threads);

/// A norm at one vector x with its scale held fixed, so that it is linear in the summands of x: gain (x -
/// mean of x) + bias; a root-mean-square norm does not subtract the mean.
struct HeldNorm {
  std::vector<double> gain;  ///< [D], weight times scale
  std::vector<double> bias;  ///< [D], or empty
  bool centred = false;      ///< whether the mean is subtracted
};
/// Applies the norm to one summand of x: gain (x - mean of x), without the bias.
void apply_held(const HeldNorm& norm, std::span<double> x);
[[nodiscard]] HeldNorm held_norm(const LayerNormWeights& weights, std::span<const float> x);
[[nodiscard]] HeldNorm held_norm(const RmsNormWeights& weights, std::span<const float> x);
[[nodiscard]] HeldNorm held_norm(const NormWeights& weights, std::span<const float> x);

}  // namespace heed::detail
