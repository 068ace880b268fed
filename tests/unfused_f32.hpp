// Attention in f32 without a fused kernel: whole rows of scores, then their softmax, then the product with
// the values. It is the yardstick for the rounding errors of an f32 kernel.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "naive_attention.hpp"
#include "random_call.hpp"

namespace heed::test {

/// The number of partial sums in a sum: 1, as for a score in a matrix product, or 16, as a vectorising
/// compiler uses for one long sum.
enum class Sums : std::size_t { one = 1, sixteen = 16 };

inline float dot_f32(const float* a, const float* b, std::size_t count, Sums partial) {
  std::array<float, 16> sums{};
  for (std::size_t i = 0; i < count; ++i) {
    float& sum = sums[i % static_cast<std::size_t>(partial)];
    sum += a[i] * b[i];
  }
  for (std::size_t half = 8; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  return sums[0];
}

/// One query head of a call, in f32, with rows as wide as its matrix products. `naive` tells which keys are
/// allowed and how far away they are.
class UnfusedHead {
 public:
  UnfusedHead(const RandomCall& call, const Naive& naive, std::int64_t b, std::int64_t h)
      : call_(call),
        naive_(naive),
        b_(b),
        h_(h),
        width_(static_cast<std::size_t>(naive.head_dim)),
        keys_(static_cast<std::size_t>(naive.keys)),
        kv_head_(call.query.rank() > 2 ? h / (naive.heads / call.key.size(-3)) : 0),
        scale_(static_cast<float>(
            call.options.scale.value_or(1 / std::sqrt(static_cast<double>(naive.head_dim))))),
        query(width_),
        key(rows_of(call.key, kv_head_)),
        value(rows_of(call.value, kv_head_)),
        weight(keys_),
        slope(keys_) {}

  [[nodiscard]] std::int64_t kv_head() const { return kv_head_; }
  [[nodiscard]] float scale() const { return scale_; }
  [[nodiscard]] bool allowed(std::int64_t i, std::size_t j) const {
    return naive_.final_scores(b_, h_, i, static_cast<std::int64_t>(j)) != kMinusInfinity;
  }

  /// Computes row i: its query, weights, and the slopes of the softcap. A row without keys has weights 0.
  void weigh(std::int64_t i) {
    const AttentionOptions& options = call_.options;
    for (std::size_t d = 0; d < width_; ++d)
      query[d] = element(call_.query, b_, h_, i, static_cast<std::int64_t>(d));
    const float sink =
        options.sinks ? element(*options.sinks, 0, 0, 0, h_) : -std::numeric_limits<float>::infinity();
    float largest = sink;
    for (std::size_t j = 0; j < keys_; ++j) {
      weight[j] = allowed(i, j) ? score(i, j) : -std::numeric_limits<float>::infinity();
      largest = std::max(largest, weight[j]);
    }
    const bool empty = !(largest > -std::numeric_limits<float>::infinity());
    for (float& w : weight) w = empty ? 0 : std::exp(w - largest);
    const std::vector<float> ones(keys_, 1.0f);
    float sum = dot_f32(weight.data(), ones.data(), keys_, Sums::sixteen);
    sink_weight = 0;
    if (options.sinks && !empty) sum += sink_weight = std::exp(sink - largest);
    for (float& w : weight) w = empty ? 0 : w / sum;
    if (!empty) sink_weight /= sum;
  }

  static float element(const TensorView& view, std::int64_t b, std::int64_t h, std::int64_t i,
                       std::int64_t c) {
    return static_cast<float>(naive_element(view, {b, h, i, c}));
  }

 private:
  std::vector<float> rows_of(const TensorView& view, std::int64_t head) const {
    std::vector<float> rows;
    for (std::int64_t j = 0; j < naive_.keys; ++j)
      for (std::int64_t c = 0; c < view.size(-1); ++c) rows.push_back(element(view, b_, head, j, c));
    return rows;
  }

  float score(std::int64_t i, std::size_t j) {
    const AttentionOptions& options = call_.options;
    const auto at = static_cast<std::int64_t>(j);
    const auto softcap = static_cast<float>(options.softcap);
    float score = scale_ * dot_f32(query.data(), key.data() + j * width_, width_, Sums::one);
    slope[j] = 1;
    if (softcap > 0) {
      const float tanh = std::tanh(score / softcap);
      score = softcap * tanh;
      slope[j] = 1 - tanh * tanh;
    }
    if (options.bias) score += element(*options.bias, b_, h_, i, at);
    if (options.alibi_slopes)
      score -= element(*options.alibi_slopes, 0, 0, b_, h_) * static_cast<float>(naive_.gap(b_, 0, i, at));
    return score;
  }

  const RandomCall& call_;
  const Naive& naive_;
  std::int64_t b_, h_;
  std::size_t width_, keys_;
  std::int64_t kv_head_;
  float scale_;

 public:
  std::vector<float> query, key, value;  ///< [D] of the current row, [Lk, D], [Lk, Dv]
  std::vector<float> weight, slope;      ///< [Lk] of the current row
  float sink_weight = 0;
};

/// The output [B, H, Lq, Dv] in f32, without dropout.
inline std::vector<float> unfused_f32(const RandomCall& call, const Naive& naive) {
  const auto keys = static_cast<std::size_t>(naive.keys);
  const auto value_width = static_cast<std::size_t>(naive.value_dim);
  std::vector<float> output, column(keys);
  for (std::int64_t b = 0; b < naive.batch; ++b)
    for (std::int64_t h = 0; h < naive.heads; ++h) {
      UnfusedHead head(call, naive, b, h);
      for (std::int64_t i = 0; i < naive.queries; ++i) {
        head.weigh(i);
        for (std::size_t c = 0; c < value_width; ++c) {
          // The value of a forbidden key may be NaN.
          for (std::size_t j = 0; j < keys; ++j)
            column[j] = head.allowed(i, j) ? head.value[j * value_width + c] : 0;
          output.push_back(dot_f32(head.weight.data(), column.data(), keys, Sums::sixteen));
        }
      }
    }
  return output;
}

}  // namespace heed::test
