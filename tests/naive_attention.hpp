// A second implementation of attention, from the definitions alone. It uses whole matrices in long double
// where the processor has that type, masks as matrices of bools, and no optimisations. Tests of kernels use
// double. It shares no code with src/, reads elements by itself, and has its own Philox.
//
// Each result comes with a magnitude that bounds its rounding error up to a factor. A kernel that
// accumulates with unit roundoff u can then be held to a bound instead of a guess (see compare_results.hpp).
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "heed/attention/attention.hpp"

namespace heed::test {

#if defined(HEED_TEST_KERNELS)
// Kernels compute in f32. The rounding of double is 2^-29 of theirs.
using Real = double;
#else
// A long double of 113 bits is computed in software, about a hundred times slower than double.
using Real = std::conditional_t<(std::numeric_limits<long double>::digits < 113), long double, double>;
#endif
inline constexpr Real kMinusInfinity = -std::numeric_limits<Real>::infinity();

/// An array [a, b, c, d] in row-major order.
struct Cube {
  std::array<std::int64_t, 4> shape{};
  std::vector<Real> values;
  Cube() = default;
  Cube(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d, Real fill = 0)
      : shape{a, b, c, d}, values(static_cast<std::size_t>(a * b * c * d), fill) {}
  Real& operator()(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d = 0) {
    return values[static_cast<std::size_t>(((a * shape[1] + b) * shape[2] + c) * shape[3] + d)];
  }
  Real operator()(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d = 0) const {
    return values[static_cast<std::size_t>(((a * shape[1] + b) * shape[2] + c) * shape[3] + d)];
  }
  /// Elements (a, b, c, 0) to (a, b, c, shape[3] - 1).
  Real* row(std::int64_t a, std::int64_t b, std::int64_t c) {
    return values.data() + ((a * shape[1] + b) * shape[2] + c) * shape[3];
  }
  const Real* row(std::int64_t a, std::int64_t b, std::int64_t c) const {
    return values.data() + ((a * shape[1] + b) * shape[2] + c) * shape[3];
  }
};

struct Naive {
  std::int64_t batch = 0, heads = 0, queries = 0, keys = 0, head_dim = 0, value_dim = 0;
  Cube output, weights;          ///< [B, H, Lq, Dv], [B, H, Lq, Lk]
  Cube scores;                   ///< at options.scores_stage
  Cube final_scores;             ///< after all steps, -inf where forbidden
  Cube lse, max_score;           ///< [B, H, Lq, 1]
  Cube entropy, distance;        ///< [B, H, Lq, 1]
  Cube received, received_last;  ///< [B, H, Lk, 1]
  Cube map;                      ///< [B, H, R, C]
  Cube gap;                      ///< [B, 1, Lq, Lk]: |p_i - j|
  Cube kept;                     ///< [B, H, Lq, Lk]: dropout's factor of a weight, for allowed keys
  Cube slope;                    ///< [B, H, Lq, Lk]: derivative of the score by scale <q, k>, from softcap
  Cube sink_weight;              ///< [B, H, Lq, 1]: exp(sink - lse)
  Cube score_magnitude;          ///< [B, H, Lq, Lk]: |scale| sum_d |q_d k_d| + |bias| + |ALiBi| + softcap
  /// [B, H, Lq, 1]: the largest magnitude of the largest score and of those with a weight. ALiBi is counted
  /// from the key of the segment that is nearest to the row, since a constant shared by all scores of a row
  /// changes no weight.
  Cube row_magnitude;
  Cube output_magnitude;  ///< [B, H, Lq, Dv]: sum_j dropout(p_ij) |v_j|
};

/// An element of a view, addressed by as many of the last indices as it has axes. An axis of size 1 takes
/// index 0.
Real naive_element(const TensorView& view, std::array<std::int64_t, 4> index);

/// A whole tensor as [B, H, L, C]; missing axes have size 1.
Cube naive_elements(const TensorView& view);

/// The larger number, or NaN if either is NaN.
Real naive_larger(Real a, Real b);

/// `positions`, if given, are the keys' positions; by default keys count from 0 in their segment.
Naive naive_attention(const TensorView& query, const TensorView& key, const TensorView& value,
                      const AttentionOptions& options, const std::vector<std::int64_t>& positions = {});

}  // namespace heed::test
