// Attention as one writes it in f32 without a fused kernel: whole rows of scores, then their softmax, then
// the product with the values. The yardstick for the rounding errors of a kernel that computes in f32.
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

/// How many sums a sum is made of: one, as for each score in a matrix product, or 16, as a vectorising
/// compiler has for one long sum.
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

/// Output [B, H, Lq, Dv] in f32, without dropout. Which keys are allowed, and how far away, is taken from
/// `naive`.
inline std::vector<float> unfused_f32(const RandomCall& call, const Naive& naive) {
  const AttentionOptions& options = call.options;
  const auto width = static_cast<std::size_t>(naive.head_dim);
  const auto value_width = static_cast<std::size_t>(naive.value_dim);
  const auto keys = static_cast<std::size_t>(naive.keys);
  const std::int64_t group = call.query.rank() > 2 ? naive.heads / call.key.size(-3) : 1;
  const auto scale =
      static_cast<float>(options.scale.value_or(1 / std::sqrt(static_cast<double>(naive.head_dim))));
  const auto softcap = static_cast<float>(options.softcap);
  const auto element = [](const TensorView& view, std::int64_t b, std::int64_t h, std::int64_t i,
                          std::int64_t c) {
    return static_cast<float>(naive_element(view, {b, h, i, c}));
  };
  std::vector<float> output;
  std::vector<float> query(width), key(keys * width), value(keys * value_width), weight(keys), column(keys);
  for (std::int64_t b = 0; b < naive.batch; ++b)
    for (std::int64_t h = 0; h < naive.heads; ++h) {
      for (std::size_t j = 0; j < keys; ++j) {
        for (std::size_t d = 0; d < width; ++d)
          key[j * width + d] =
              element(call.key, b, h / group, static_cast<std::int64_t>(j), static_cast<std::int64_t>(d));
        for (std::size_t c = 0; c < value_width; ++c)
          value[c * keys + j] =
              element(call.value, b, h / group, static_cast<std::int64_t>(j), static_cast<std::int64_t>(c));
      }
      for (std::int64_t i = 0; i < naive.queries; ++i) {
        for (std::size_t d = 0; d < width; ++d)
          query[d] = element(call.query, b, h, i, static_cast<std::int64_t>(d));
        const float sink =
            options.sinks ? element(*options.sinks, 0, 0, 0, h) : -std::numeric_limits<float>::infinity();
        float largest = sink;
        for (std::size_t j = 0; j < keys; ++j) {
          const auto at = static_cast<std::int64_t>(j);
          float score = scale * dot_f32(query.data(), key.data() + j * width, width, Sums::one);
          if (softcap > 0) score = softcap * std::tanh(score / softcap);
          if (options.bias) score += element(*options.bias, b, h, i, at);
          if (options.alibi_slopes)
            score -= element(*options.alibi_slopes, 0, 0, b, h) * static_cast<float>(naive.gap(b, 0, i, at));
          if (naive.final_scores(b, h, i, at) == kMinusInfinity)
            score = -std::numeric_limits<float>::infinity();
          weight[j] = score;
          largest = std::max(largest, score);
        }
        const bool empty = !(largest > -std::numeric_limits<float>::infinity());
        for (std::size_t j = 0; j < keys; ++j) weight[j] = empty ? 0 : std::exp(weight[j] - largest);
        const std::vector<float> ones(keys, 1.0f);
        float sum = dot_f32(weight.data(), ones.data(), keys, Sums::sixteen);
        if (options.sinks && !empty) sum += std::exp(sink - largest);
        for (float& w : weight) w = empty ? 0 : w / sum;
        for (std::size_t c = 0; c < value_width; ++c) {
          // A forbidden key's value may be NaN.
          for (std::size_t j = 0; j < keys; ++j)
            column[j] = naive.final_scores(b, h, i, static_cast<std::int64_t>(j)) == kMinusInfinity
                            ? 0
                            : value[c * keys + j];
          output.push_back(dot_f32(weight.data(), column.data(), keys, Sums::sixteen));
        }
      }
    }
  return output;
}

}  // namespace heed::test
