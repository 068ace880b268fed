// The feed-forward parts of blocks. Rows are processed a piece at a time, which keeps the hidden layer small
// at any length.
#pragma once

#include <cstdint>
#include <vector>

#include "model/layers/activations.hpp"
#include "model/layers/linear.hpp"

namespace heed::detail {

/// gpt-oss's gate: (clamp(u, -limit, limit) + 1) g sigmoid(alpha g) with g = min(gate, limit).
struct ClampedGate {
  float alpha = 1.702f, limit = 7;
};

/// down(act(up(x))); with a gate, down(act(gate(x)) * up(x)) (Shazeer 2020).
struct MlpWeights {
  std::optional<LinearWeights> gate;
  LinearWeights up, down;
  Activation activation = Activation::gelu;
  std::optional<ClampedGate> clamped{};  ///< in place of act(gate) * up
  bool in_turns = false;                 ///< `up` gives gates and ups in turns; `gate` is absent
};

/// x [R, D], contiguous → [R, D].
[[nodiscard]] Tensor mlp(const TensorView& x, const MlpWeights& weights, int threads);

/// to += x.
void add_to(Tensor& to, const Tensor& x, int threads);

/// A mixture of experts (Shazeer et al. 2017; Jiang et al. 2024, Mixtral).
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
