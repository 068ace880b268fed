// The backward pass in f32 without a fused kernel: whole matrices of weights and of their gradients, and a
// matrix product for each of dQ, dK and dV. It is the yardstick for the rounding errors of an f32 kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backward_call.hpp"
#include "unfused_f32.hpp"

namespace heed::test {

/// Gradients in f32, row-major; the caller rounds them to its dtypes.
struct UnfusedGradients {
  std::vector<float> query, key, value;  ///< [B, H, Lq, D], [B, Hkv, Lk, D], [B, Hkv, Lk, Dv]
  std::vector<float> scores;             ///< dS [B, H, Lq, Lk], before the sum that gives the bias gradient
  std::vector<float> sinks;              ///< [B, H, Lq], before the sum over rows
};

class UnfusedBackward {
 public:
  /// With `in_bf16`, weights and their gradients are rounded to bf16 for the products. The mean of a row's
  /// gradients is then computed from the rounded output.
  UnfusedBackward(const BackwardCall& made, bool in_bf16)
      : made_(made),
        in_bf16_(in_bf16),
        n_(made.naive),
        rows_(static_cast<std::size_t>(n_.queries)),
        keys_(static_cast<std::size_t>(n_.keys)),
        width_(static_cast<std::size_t>(n_.head_dim)),
        value_width_(static_cast<std::size_t>(n_.value_dim)) {}

  UnfusedGradients compute() {
    const auto kv_heads = static_cast<std::size_t>(made_.call.key.rank() > 2 ? made_.call.key.size(-3) : 1);
    const auto batch = static_cast<std::size_t>(n_.batch);
    g_.key.resize(batch * kv_heads * keys_ * width_);
    g_.value.resize(batch * kv_heads * keys_ * value_width_);
    for (std::int64_t b = 0; b < n_.batch; ++b)
      for (std::int64_t h = 0; h < n_.heads; ++h) {
        UnfusedHead head(made_.call, n_, b, h);
        weights_.assign(rows_ * keys_, 0);
        grad_scores_.assign(rows_ * keys_, 0);
        queries_.clear();
        grad_output_.clear();
        for (std::int64_t i = 0; i < n_.queries; ++i) softmax_backward(head, b, h, i);
        const auto at = static_cast<std::size_t>(b) * kv_heads + static_cast<std::size_t>(head.kv_head());
        query_product(head);
        add_key_products(head, at);
      }
    return std::move(g_);
  }

 private:
  static std::int64_t signed_of(std::size_t n) { return static_cast<std::int64_t>(n); }

  [[nodiscard]] float operand(float x) const { return in_bf16_ ? to_float(to_bfloat16(x)) : x; }

  // Computes a row of the weights times dropout, and of dS times the slope.
  void softmax_backward(UnfusedHead& head, std::int64_t b, std::int64_t h, std::int64_t i) {
    head.weigh(i);
    queries_.insert(queries_.end(), head.query.begin(), head.query.end());
    for (std::int64_t c = 0; c < n_.value_dim; ++c)
      grad_output_.push_back(UnfusedHead::element(made_.inputs.grad_output, b, h, i, c));
    const float* grad_output = grad_output_.data() + static_cast<std::size_t>(i) * value_width_;
    std::vector<float> grad(keys_, 0);
    for (std::size_t j = 0; j < keys_; ++j) {
      if (!head.allowed(i, j)) continue;
      const auto kept = static_cast<float>(n_.kept(b, h, i, signed_of(j)));
      if (kept != 0)
        grad[j] = kept * dot_f32(grad_output, head.value.data() + j * value_width_, value_width_, Sums::one);
      if (made_.inputs.grad_weights)
        grad[j] += UnfusedHead::element(*made_.inputs.grad_weights, b, h, i, signed_of(j));
    }
    const float mean = in_bf16_ ? mean_by_output(b, h, i, grad_output)
                                : dot_f32(head.weight.data(), grad.data(), keys_, Sums::sixteen);
    const bool empty = n_.lse(b, h, i) == kMinusInfinity;
    const float by_lse =
        made_.inputs.grad_lse && !empty ? UnfusedHead::element(*made_.inputs.grad_lse, 0, b, h, i) : 0;
    for (std::size_t j = 0; j < keys_; ++j) {
      const float score = head.allowed(i, j) ? head.weight[j] * (grad[j] - mean + by_lse) : 0;
      const std::size_t at = static_cast<std::size_t>(i) * keys_ + j;
      g_.scores.push_back(score);
      if (!head.allowed(i, j)) continue;
      grad_scores_[at] = operand(score * head.slope[j]);
      weights_[at] = operand(head.weight[j] * static_cast<float>(n_.kept(b, h, i, signed_of(j))));
    }
    g_.sinks.push_back(head.sink_weight * (by_lse - mean));
  }

  float mean_by_output(std::int64_t b, std::int64_t h, std::int64_t i, const float* grad_output) const {
    std::vector<float> output;
    for (std::int64_t c = 0; c < n_.value_dim; ++c)
      output.push_back(UnfusedHead::element(made_.inputs.output, b, h, i, c));
    return dot_f32(grad_output, output.data(), value_width_, Sums::sixteen);
  }

  // The product of `left` [rows] and a column of `right` [rows, width]. Rows where `left` is 0 are skipped,
  // since `right` may be NaN there.
  float column_product(const std::vector<float>& left, const std::vector<float>& right, std::size_t column,
                       std::size_t width) {
    column_.assign(left.size(), 0);
    for (std::size_t n = 0; n < left.size(); ++n)
      if (left[n] != 0) column_[n] = right[n * width + column];
    return dot_f32(left.data(), column_.data(), left.size(), Sums::sixteen);
  }

  // Computes dQ = scale dT K.
  void query_product(const UnfusedHead& head) {
    for (std::size_t i = 0; i < rows_; ++i) {
      const auto begin = grad_scores_.begin() + signed_of(i * keys_);
      const std::vector<float> row(begin, begin + signed_of(keys_));
      for (std::size_t d = 0; d < width_; ++d)
        g_.query.push_back(head.scale() * column_product(row, head.key, d, width_));
    }
  }

  // Computes dK = scale dT^T Q and dV = (p m)^T dO, and adds them to the sums over the key head's query
  // heads.
  void add_key_products(const UnfusedHead& head, std::size_t kv) {
    std::vector<float> grad_column(rows_), weight_column(rows_);
    for (std::size_t j = 0; j < keys_; ++j) {
      for (std::size_t i = 0; i < rows_; ++i) {
        grad_column[i] = grad_scores_[i * keys_ + j];
        weight_column[i] = weights_[i * keys_ + j];
      }
      for (std::size_t d = 0; d < width_; ++d)
        g_.key[(kv * keys_ + j) * width_ + d] +=
            head.scale() * column_product(grad_column, queries_, d, width_);
      for (std::size_t c = 0; c < value_width_; ++c)
        g_.value[(kv * keys_ + j) * value_width_ + c] +=
            column_product(weight_column, grad_output_, c, value_width_);
    }
  }

  const BackwardCall& made_;
  bool in_bf16_;
  const Naive& n_;
  std::size_t rows_, keys_, width_, value_width_;
  UnfusedGradients g_;
  std::vector<float> weights_, grad_scores_;  // [Lq, Lk] of the current head
  std::vector<float> queries_, grad_output_;  // [Lq, D], [Lq, Dv]
  std::vector<float> column_;
};

inline UnfusedGradients unfused_backward_f32(const BackwardCall& made, bool in_bf16 = false) {
  return UnfusedBackward(made, in_bf16).compute();
}

}  // namespace heed::test
