// Compares a kernel's gradient errors with an unfused computation in f32 of the same call.
//
// Single rows are not comparable, because their errors depend on chance. So the error of each row (of the
// last axis) is divided by the rounding error that is possible for that row. The largest and the root mean
// square of these are compared.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "compare_gradients.hpp"
#include "unfused_backward_f32.hpp"

namespace heed::test {

inline constexpr std::array<const char*, 5> kGradientNames{"dQ", "dK", "dV", "dBias", "dSinks"};

struct GradientErrors {
  struct Sums {
    double sum_of_squares = 0, largest = 0;
    void add(double error) {
      sum_of_squares += error * error;
      largest = error <= largest ? largest : error;  // keeps NaN
    }
  };
  Sums kernel, unfused;
  std::int64_t rows = 0;

  /// The kernel's root mean square error divided by the unfused one; below, the same for the largest errors.
  [[nodiscard]] double mean_ratio() const {
    return std::sqrt(kernel.sum_of_squares / unfused.sum_of_squares);
  }
  [[nodiscard]] double largest_ratio() const { return kernel.largest / unfused.largest; }
};

/// In the order of kGradientNames.
using AllGradientErrors = std::array<GradientErrors, 5>;

class GradientErrorCounter {
 public:
  GradientErrorCounter(const BackwardCall& made, const AttentionGradients& gradients, bool in_bf16)
      : made_(made),
        got_(gradients),
        expected_(naive_backward(made.inputs, made.call.options, made.naive)),
        unfused_(unfused_backward_f32(made, in_bf16)) {}

  void add_to(AllGradientErrors& errors) const {
    const auto length = [](std::int64_t a, std::int64_t b) { return static_cast<double>(2 * a + b + 8); };
    const std::int64_t rows = made_.naive.queries * made_.naive.heads, keys = made_.naive.keys;
    const std::int64_t width = made_.naive.value_dim;
    add(got_.query, expected_.query, expected_.query_magnitude, unfused_.query, length(width, 2 * keys),
        errors[0]);
    add(got_.key, expected_.key, expected_.key_magnitude, unfused_.key, length(width, keys + rows),
        errors[1]);
    add(got_.value, expected_.value, expected_.value_magnitude, unfused_.value, length(0, keys + rows),
        errors[2]);
    if (made_.request.bias) {
      const auto size = four_axes(got_.bias.shape());
      add(got_.bias, summed_to(expected_.scores, size), summed_to(expected_.scores_magnitude, size),
          summed_f32(unfused_.scores, expected_.scores.shape, size), length(width, keys + rows), errors[3]);
    }
    if (made_.request.sinks) {
      const std::array<std::int64_t, 4> size{1, got_.sinks.count(), 1, 1};
      add(got_.sinks, summed_to(expected_.sinks, size), summed_to(expected_.sinks_magnitude, size),
          summed_f32(unfused_.sinks, expected_.sinks.shape, size), length(width, keys + rows), errors[4]);
    }
  }

 private:
  // Like summed_to(), but in f32 with sixteen partial sums for each element.
  static std::vector<float> summed_f32(const std::vector<float>& terms, std::array<std::int64_t, 4> shape,
                                       std::array<std::int64_t, 4> size) {
    std::vector<std::vector<float>> groups(static_cast<std::size_t>(size[0] * size[1] * size[2] * size[3]));
    std::size_t n = 0;
    const auto at = [&](std::size_t axis, std::int64_t index) { return size[axis] == 1 ? 0 : index; };
    for (std::int64_t a = 0; a < shape[0]; ++a)
      for (std::int64_t b = 0; b < shape[1]; ++b)
        for (std::int64_t c = 0; c < shape[2]; ++c)
          for (std::int64_t d = 0; d < shape[3]; ++d, ++n)
            groups[static_cast<std::size_t>(((at(0, a) * size[1] + at(1, b)) * size[2] + at(2, c)) * size[3] +
                                            at(3, d))]
                .push_back(terms[n]);
    std::vector<float> sums;
    for (const std::vector<float>& group : groups) {
      const std::vector<float> ones(group.size(), 1.0f);
      sums.push_back(dot_f32(group.data(), ones.data(), group.size(), Sums::sixteen));
    }
    return sums;
  }

  static double rounded(float x, DType dtype) {
    if (dtype == DType::bf16) x = to_float(to_bfloat16(x));
    if (dtype == DType::f16) x = to_float(to_float16(x));
    return static_cast<double>(x);
  }

  // The unit of a row is a relative error times the row's largest magnitude, plus half an ulp of the stored
  // dtype. The relative error has two parts: scores of magnitude A, and sums of `length` terms.
  void add(const Tensor& got, const Cube& expected, const Cube& magnitude, const std::vector<float>& unfused,
           double length, GradientErrors& errors) const {
    const Tensor wide = Tensor::copy_of(got, DType::f64);
    const auto width = static_cast<std::size_t>(expected.shape[3]);
    const double scores = 2 * static_cast<double>(made_.naive.head_dim + 3) * largest_score();
    for (std::size_t begin = 0; begin < expected.values.size(); begin += width) {
      double mine = 0, theirs = 0, size = 0, most = 0;
      for (std::size_t n = begin; n < begin + width; ++n) {
        const auto exact = static_cast<double>(expected.values[n]);
        const double error = std::abs(wide.values<double>()[n] - exact);
        mine = error <= mine ? mine : error;
        theirs = std::max(theirs, std::abs(rounded(unfused[n], got.dtype()) - exact));
        size = std::max(size, std::abs(exact));
        most = std::max(most, static_cast<double>(magnitude.values[n]));
      }
      // Smaller rows come from weights that a kernel may round to 0; larger ones overflow f16.
      if (most < 0x1p-90 || (got.dtype() == DType::f16 && size > 60000)) continue;
      const double unit = (scores + length) * 0x1p-24 * most +
                          static_cast<double>(storing_error(got.dtype(), static_cast<Real>(size)));
      errors.kernel.add(mine / unit);
      errors.unfused.add(theirs / unit);
      ++errors.rows;
    }
  }

  double largest_score() const {
    Real largest = 0;
    for (const Real magnitude : made_.naive.row_magnitude.values) largest = std::max(largest, magnitude);
    return static_cast<double>(largest);
  }

  const BackwardCall& made_;
  const AttentionGradients& got_;
  NaiveGradients expected_;
  UnfusedGradients unfused_;
};

/// Adds the errors of one call. With `in_bf16` the unfused computation is in bf16.
inline void add_errors(const BackwardCall& made, const AttentionGradients& gradients,
                       AllGradientErrors& errors, bool in_bf16 = false) {
  GradientErrorCounter(made, gradients, in_bf16).add_to(errors);
}

}  // namespace heed::test
