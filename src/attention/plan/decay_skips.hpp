// Finds the keys that a decay leaves without weight, and forbids them by a mask, so that kernels skip them.
//
// With |s_ij| <= bound_i before the decay (Cauchy and Schwarz), and l the last key that row i sees, a key
// with c_j > c_l + 2 bound_i + T has a score below that of l by more than T. The kernel turns a weight that
// far below the row's largest score into 0, and T is so large that sums which were rescaled on the way are 0,
// too. So output, lse and gradients keep their bits, unless an output is below 2^-117 of the values.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/problem/problem.hpp"
#include "heed/attention/attention.hpp"

namespace heed::detail {

class DecaySkips {
 public:
  DecaySkips(const Problem& problem, Kernel wanted);
  DecaySkips(const BackwardProblem& problem, Kernel wanted);

  explicit operator bool() const { return skips_; }
  /// The mask; it points to this object.
  [[nodiscard]] MaskSource mask() const;

 private:
  [[nodiscard]] const std::int64_t* begins_of(const MaskTile& tile) const {
    return begins_.data() + (tile.batch * heads_ + tile.head) * rows_;
  }
  void find(const Problem& p);
  bool find_head(const Problem& p, std::int64_t batch, std::int64_t kv_head);

  std::int64_t heads_ = 0, rows_ = 0;
  std::vector<std::int64_t> begins_;  // [B, H, Lq]: the row's first key with a weight
  bool skips_ = false;
};

}  // namespace heed::detail
