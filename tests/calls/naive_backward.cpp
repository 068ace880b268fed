#include "naive_backward.hpp"

#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace heed::test {

namespace {

class NaiveBackward {
 public:
  NaiveBackward(const AttentionBackwardInputs& inputs, const AttentionOptions& options, const Naive& naive,
                Cube row_factor)
      : n_(naive),
        query_(naive_elements(inputs.query)),
        key_(naive_elements(inputs.key)),
        value_(naive_elements(inputs.value)),
        grad_output_(naive_elements(inputs.grad_output)),
        row_factor_(std::move(row_factor)) {
    if (row_factor_.values.empty()) row_factor_ = Cube(n_.batch, n_.heads, n_.queries, 1, 1);
    grad_lse_ = inputs.grad_lse;
    if (inputs.grad_weights) grad_weights_ = naive_elements(*inputs.grad_weights);
    scale_ =
        options.scale ? static_cast<Real>(*options.scale) : 1 / std::sqrt(static_cast<Real>(n_.head_dim));
    kv_heads_ = key_.shape[1];
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
    const Real kept = n_.kept(b, h, i, j);
    const Real* grad_output = grad_output_.row(b, h, i);
    const Real* value = value_.row(b, kv_head(h), j);
    for (Index c = 0; kept != 0 && c < n_.value_dim; ++c) {
      const Real term = grad_output[c] * value[c] * kept;
      grad += term;
      magnitude += std::abs(term);
    }
    if (grad_weights_.values.empty()) return grad;
    const Real direct = grad_weights_(b, h, i, j);
    magnitude += std::abs(direct);
    return grad + direct;
  }

  // Goes back through the softmax, whose denominator also gives lse.
  void softmax_backward(Index b, Index h, Index i) {
    if (n_.lse(b, h, i) == kMinusInfinity) return;
    Real mean = 0, mean_magnitude = 0;
    std::vector<Real> grads(static_cast<std::size_t>(n_.keys)), magnitudes(grads.size());
    for (Index j = 0; j < n_.keys; ++j) {
      if (n_.final_scores(b, h, i, j) == kMinusInfinity) continue;
      const auto at = static_cast<std::size_t>(j);
      grads[at] = grad_weight(b, h, i, j, magnitudes[at]);
      mean += n_.weights(b, h, i, j) * grads[at];
      mean_magnitude += n_.weights(b, h, i, j) * magnitudes[at];
    }
    const Real by_lse = grad_lse_ ? naive_element(*grad_lse_, {0, b, h, i}) : 0;
    for (Index j = 0; j < n_.keys; ++j) {
      if (n_.final_scores(b, h, i, j) == kMinusInfinity) continue;
      const Real grad = grads[static_cast<std::size_t>(j)];
      const Real magnitude = magnitudes[static_cast<std::size_t>(j)];
      g_.scores(b, h, i, j) = n_.weights(b, h, i, j) * (grad - mean + by_lse);
      g_.scores_magnitude(b, h, i, j) =
          row_factor_(b, h, i) * n_.weights(b, h, i, j) * (magnitude + mean_magnitude + std::abs(by_lse));
    }
    g_.sinks(b, h, i) = n_.sink_weight(b, h, i) * (by_lse - mean);
    g_.sinks_magnitude(b, h, i) =
        row_factor_(b, h, i) * n_.sink_weight(b, h, i) * (std::abs(by_lse) + mean_magnitude);
  }

  // Goes back through softcap and scale to query and key, and from the output to the value. The magnitude of
  // the slope is taken as 1, since the slope is a difference from 1.
  void products_backward(Index b, Index h, Index i, Index j) {
    const Index kv = kv_head(h);
    const Real grad = g_.scores(b, h, i, j) * n_.slope(b, h, i, j) * scale_;
    const Real magnitude = g_.scores_magnitude(b, h, i, j) * std::abs(scale_);
    const Real *query = query_.row(b, h, i), *key = key_.row(b, kv, j);
    Real *grad_query = g_.query.row(b, h, i), *grad_key = g_.key.row(b, kv, j);
    Real *query_magnitude = g_.query_magnitude.row(b, h, i), *key_magnitude = g_.key_magnitude.row(b, kv, j);
    for (Index d = 0; d < n_.head_dim; ++d) {
      grad_query[d] += grad * key[d];
      query_magnitude[d] += magnitude * std::abs(key[d]);
      grad_key[d] += grad * query[d];
      key_magnitude[d] += magnitude * std::abs(query[d]);
    }
    const Real kept = n_.kept(b, h, i, j);
    if (kept == 0) return;
    const Real weight = n_.weights(b, h, i, j) * kept, factor = row_factor_(b, h, i);
    const Real* grad_output = grad_output_.row(b, h, i);
    Real *grad_value = g_.value.row(b, kv, j), *value_magnitude = g_.value_magnitude.row(b, kv, j);
    for (Index c = 0; c < n_.value_dim; ++c) {
      const Real term = weight * grad_output[c];
      grad_value[c] += term;
      value_magnitude[c] += factor * std::abs(term);
    }
  }

  Index kv_head(Index h) const { return h / (n_.heads / kv_heads_); }

  const Naive& n_;
  Cube query_, key_, value_, grad_output_, grad_weights_, row_factor_;
  std::optional<TensorView> grad_lse_;
  NaiveGradients g_;
  Real scale_ = 1;
  Index kv_heads_ = 1;
};

}  // namespace

NaiveGradients naive_backward(const AttentionBackwardInputs& inputs, const AttentionOptions& options,
                              const Naive& naive, Cube row_factor) {
  return NaiveBackward(inputs, options, naive, std::move(row_factor)).compute();
}

}  // namespace heed::test
