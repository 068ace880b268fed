// The gradients of attention computed a second time: whole matrices in the naive computation's precision, as
// one writes them down after unfused attention. Shares no code with src/.
//
// Beside each gradient stands the sum of the magnitudes of its terms, which its rounding error may be
// proportional to.
#pragma once

#include <cmath>
#include <cstdint>

#include "heed/backward.hpp"
#include "naive_attention.hpp"

namespace heed::test {

struct NaiveGradients {
  Cube query, key, value;  ///< [B, H, Lq, D], [B, Hkv, Lk, D], [B, Hkv, Lk, Dv]
  Cube scores;             ///< dS [B, H, Lq, Lk]: before it is summed into that of the bias
  Cube sinks;              ///< [B, H, Lq, 1]: before it is summed
  Cube query_magnitude, key_magnitude, value_magnitude, scores_magnitude, sinks_magnitude;
};

class NaiveBackward {
 public:
  NaiveBackward(const AttentionBackwardInputs& inputs, const AttentionOptions& options, const Naive& naive)
      : in_(inputs), n_(naive) {
    scale_ =
        options.scale ? static_cast<Real>(*options.scale) : 1 / std::sqrt(static_cast<Real>(n_.head_dim));
    kv_heads_ = in_.key.rank() > 2 ? in_.key.size(-3) : 1;
  }

  NaiveGradients compute() {
    g_.scores = g_.scores_magnitude = Cube(n_.batch, n_.heads, n_.queries, n_.keys);
    g_.sinks = g_.sinks_magnitude = Cube(n_.batch, n_.heads, n_.queries, 1);
    g_.query = g_.query_magnitude = Cube(n_.batch, n_.heads, n_.queries, n_.head_dim);
    g_.key = g_.key_magnitude = Cube(n_.batch, kv_heads_, n_.keys, n_.head_dim);
    g_.value = g_.value_magnitude = Cube(n_.batch, kv_heads_, n_.keys, n_.value_dim);
    for (Index b = 0; b < n_.batch; ++b)
      for (Index h = 0; h < n_.heads; ++h)
        for (Index i = 0; i < n_.queries; ++i) {
          softmax_backward(b, h, i);
          for (Index j = 0; j < n_.keys; ++j)
            if (n_.final_scores(b, h, i, j) != kMinusInfinity) products_backward(b, h, i, j);
        }
    return std::move(g_);
  }

 private:
  using Index = std::int64_t;

  // dP of one weight, and its magnitude.
  Real grad_weight(Index b, Index h, Index i, Index j, Real& magnitude) const {
    Real grad = 0;
    magnitude = 0;
    if (n_.kept(b, h, i, j) != 0)
      for (Index c = 0; c < n_.value_dim; ++c) {
        const Real term = naive_element(in_.grad_output, {b, h, i, c}) *
                          naive_element(in_.value, {b, kv_head(h), j, c}) * n_.kept(b, h, i, j);
        grad += term;
        magnitude += std::abs(term);
      }
    if (!in_.grad_weights) return grad;
    const Real direct = naive_element(*in_.grad_weights, {b, h, i, j});
    magnitude += std::abs(direct);
    return grad + direct;
  }

  // The Jacobian of the softmax, and of its logarithm's denominator.
  void softmax_backward(Index b, Index h, Index i) {
    if (n_.lse(b, h, i) == kMinusInfinity) return;
    Real mean = 0, mean_magnitude = 0, magnitude = 0;
    for (Index j = 0; j < n_.keys; ++j) {
      if (n_.final_scores(b, h, i, j) == kMinusInfinity) continue;
      mean += n_.weights(b, h, i, j) * grad_weight(b, h, i, j, magnitude);
      mean_magnitude += n_.weights(b, h, i, j) * magnitude;
    }
    const Real by_lse = in_.grad_lse ? naive_element(*in_.grad_lse, {0, b, h, i}) : 0;
    for (Index j = 0; j < n_.keys; ++j) {
      if (n_.final_scores(b, h, i, j) == kMinusInfinity) continue;
      const Real grad = grad_weight(b, h, i, j, magnitude);
      g_.scores(b, h, i, j) = n_.weights(b, h, i, j) * (grad - mean + by_lse);
      g_.scores_magnitude(b, h, i, j) =
          n_.weights(b, h, i, j) * (magnitude + mean_magnitude + std::abs(by_lse));
    }
    g_.sinks(b, h, i) = n_.sink_weight(b, h, i) * (by_lse - mean);
    g_.sinks_magnitude(b, h, i) = n_.sink_weight(b, h, i) * (std::abs(by_lse) + mean_magnitude);
  }

  // Through softcap and scale to query and key, and from the output to the value. The slope's magnitude is
  // taken as 1: it is a difference from 1.
  void products_backward(Index b, Index h, Index i, Index j) {
    const Index kv = kv_head(h);
    const Real grad = g_.scores(b, h, i, j) * n_.slope(b, h, i, j) * scale_;
    const Real magnitude = g_.scores_magnitude(b, h, i, j) * std::abs(scale_);
    for (Index d = 0; d < n_.head_dim; ++d) {
      const Real q = naive_element(in_.query, {b, h, i, d});
      const Real k = naive_element(in_.key, {b, kv, j, d});
      g_.query(b, h, i, d) += grad * k;
      g_.query_magnitude(b, h, i, d) += magnitude * std::abs(k);
      g_.key(b, kv, j, d) += grad * q;
      g_.key_magnitude(b, kv, j, d) += magnitude * std::abs(q);
    }
    if (n_.kept(b, h, i, j) == 0) return;
    for (Index c = 0; c < n_.value_dim; ++c) {
      const Real term =
          n_.weights(b, h, i, j) * n_.kept(b, h, i, j) * naive_element(in_.grad_output, {b, h, i, c});
      g_.value(b, kv, j, c) += term;
      g_.value_magnitude(b, kv, j, c) += std::abs(term);
    }
  }

  Index kv_head(Index h) const { return h / (n_.heads / kv_heads_); }

  const AttentionBackwardInputs& in_;
  const Naive& n_;
  NaiveGradients g_;
  Real scale_ = 1;
  Index kv_heads_ = 1;
};

inline NaiveGradients naive_backward(const AttentionBackwardInputs& inputs, const AttentionOptions& options,
                                     const Naive& naive) {
  return NaiveBackward(inputs, options, naive).compute();
}

}  // namespace heed::test
