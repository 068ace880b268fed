// The softmax of one row, in f64, for the kernels that follow the formulas directly.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

#include "attention/problem/score_rules.hpp"

namespace heed::detail {

inline double larger(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? std::numeric_limits<double>::quiet_NaN() : std::max(a, b);
}

inline constexpr double kNoWeight = -746;  // exp of anything smaller is 0

struct Normaliser {
  double max_score = -kInfinity;  ///< over the keys, without the sink
  double lse = -kInfinity;
  double sink_weight = 0;  ///< exp(sink - lse)
};

/// lse_i = m + log(sum_j exp(s_ij - m) + exp(sink - m)) and p_ij = exp(s_ij - m) / sum. m is the largest of
/// all scores and the sink, so no exponential overflows; `weights` become the p_ij. A forbidden key has the
/// score -inf and the weight 0. A row with neither key nor sink has lse -inf. A largest score of +inf makes
/// inf - inf, so weights and lse become NaN, as in PyTorch.
inline Normaliser normalise(std::span<const double> scores, std::span<double> weights, double sink) {
  Normaliser row;
  for (double score : scores) row.max_score = larger(row.max_score, score);
  const double m = larger(row.max_score, sink);
  const double sink_part = sink == -kInfinity ? 0 : std::exp(sink - m);
  double sum = sink_part;
  for (std::size_t j = 0; j < scores.size(); ++j) {
    weights[j] = scores[j] == -kInfinity || scores[j] - m < kNoWeight ? 0 : std::exp(scores[j] - m);
    sum += weights[j];
  }
  for (std::size_t j = 0; j < scores.size(); ++j)
    if (scores[j] != -kInfinity) weights[j] /= sum;
  if (sink != -kInfinity) row.sink_weight = sink_part / sum;
  if (m != -kInfinity) row.lse = m + std::log(sum);
  return row;
}

}  // namespace heed::detail
