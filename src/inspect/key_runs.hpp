// Weights of rows on runs of a key list, at the speed of the fused kernel.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/problem/problem.hpp"
#include "inspect/single_weights.hpp"

namespace heed::detail {

/// Row rows[n] (ascending, in one segment) uses keys[begin] to keys[end - 1] of its own begin and end. Both
/// ascend over the rows.
struct KeyRuns {
  const Segment* segment = nullptr;
  std::vector<std::int64_t> rows;
  std::vector<std::int64_t> keys;
  std::vector<KeyRange> runs;
};

/// With fewer rows or keys than this, single weights are faster.
inline constexpr std::size_t kWorthGathering = 64;

/// Whether the fused kernel can compute runs of this call. A mask, a bias, ALiBi or a score
/// expression prevents it, because gathered keys have other indices. (Causality and windows are part of the
/// runs.)
bool can_gather(const Problem& p);

/// Writes to sums [B, H, Lq] the weight of each row on its run; NaN if the row's lse is NaN.
void fill_runs(const Problem& p, const Operand& lse, const KeyRuns& runs, const Output& sums);

}  // namespace heed::detail
