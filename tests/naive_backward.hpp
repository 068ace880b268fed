// A second implementation of attention's gradients. It uses whole matrices in the precision of the naive
// computation, as in unfused attention, and shares no code with src/.
//
// Each gradient comes with the sum of its terms' magnitudes, which bounds its rounding error up to a factor.
#pragma once

#include "heed/attention/backward.hpp"
#include "naive_attention.hpp"

namespace heed::test {

struct NaiveGradients {
  Cube query, key, value;  ///< [B, H, Lq, D], [B, Hkv, Lk, D], [B, Hkv, Lk, Dv]
  Cube scores;             ///< dS [B, H, Lq, Lk], before the sum that gives the bias gradient
  Cube sinks;              ///< [B, H, Lq, 1], before the sum over rows
  Cube query_magnitude, key_magnitude, value_magnitude, scores_magnitude, sinks_magnitude;
};

/// `row_factor` [B, H, Lq, 1], if given, multiplies the magnitudes of each row's terms.
NaiveGradients naive_backward(const AttentionBackwardInputs& inputs, const AttentionOptions& options,
                              const Naive& naive, Cube row_factor = {});

}  // namespace heed::test
