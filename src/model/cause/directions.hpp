// Directions: how much a number of interest grows with each component of a vector. They pass backwards
// through the linear steps of a model, whose norms are held.
#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "model/parts.hpp"

namespace heed::detail {

using Direction = std::vector<double>;

template <class T>
[[nodiscard]] double dot(std::span<const double> a, std::span<const T> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

/// The direction d with <d, x> = <direction, norm(x)>, up to the norm's bias.
[[nodiscard]] Direction through(const HeldNorm& norm, const Direction& direction);
/// Returns <direction, bias of the norm>.
[[nodiscard]] double share_of_bias(const HeldNorm& norm, const Direction& direction);
/// Returns W^T direction.
[[nodiscard]] Direction through(const LinearWeights& weights, const Direction& direction);
/// The direction of the stream, for a direction [d] of a head's query, key or value at position `at` of a
/// text of `length` tokens.
[[nodiscard]] Direction through(const HeadInput& input, Direction direction, std::int64_t at,
                                std::int64_t length);

/// Outputs [first, first + count) of W as rows: [count][inputs].
[[nodiscard]] std::vector<float> rows_of_outputs(const LinearWeights& weights, std::int64_t first,
                                                 std::int64_t count);
/// Throws Error (invalid_argument) for a model whose logits are not a sum of the layers' outputs.
void check_has_shares(const Model& model);
/// The directions of a token's logit (before a last softcap), where the last norm is held at the row x [D].
struct LogitDirection {
  Direction hidden;     ///< of the hidden state behind the last norm
  Direction stream;     ///< of x
  double bias = 0;      ///< of the logit itself
  double constant = 0;  ///< with that of the norm's bias: logit = <stream, x> + constant
};
[[nodiscard]] LogitDirection logit_direction(const Model& model, std::span<const float> x,
                                             std::int64_t token);
/// The token of the largest logit for a hidden state [1, D].
[[nodiscard]] std::int64_t likeliest_token(const Model& model, const Tensor& hidden, int threads);

[[nodiscard]] double bias_at(const LinearWeights& weights, std::int64_t output);

}  // namespace heed::detail
