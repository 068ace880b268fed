// Mixtures of experts (Shazeer et al. 2017; Jiang et al. 2024, Mixtral).
#pragma once

#include <cstdint>
#include <vector>

#include "model/layers/linear.hpp"
#include "model/layers/mlp.hpp"

namespace heed::detail {

/// Each row x goes to the `chosen` experts e with the largest logits r = W_R x (the lower e where two are
/// equal):
///
///   sum_e p_e mlp_e(x),   p = softmax(r), over all experts or over the chosen ones
struct MixtureWeights {
  LinearWeights router;  ///< [E, D]
  std::vector<MlpWeights> experts;
  std::int64_t chosen = 1;
  bool over_chosen = true;  ///< whether the weights p of the chosen experts sum to 1
};

/// x [R, D], contiguous → [R, D].
[[nodiscard]] Tensor mixture(const TensorView& x, const MixtureWeights& weights, int threads);

}  // namespace heed::detail
