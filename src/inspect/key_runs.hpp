// The weight of rows on runs of a list of keys, at the speed of the fused kernel.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/problem/problem.hpp"
#include "inspect/single_weights.hpp"

namespace heed::detail {

/// Of each row of `rows` (ascending, of one segment): it takes keys[begin] to keys[end - 1]. Begins ascend,
/// and so do ends.
struct KeyRuns {
  const Segment* segment = nullptr;
  std::vector<std::int64_t> rows;
  std::vector<std::int64_t> keys;
  std::vector<KeyRange> runs;
};

/// Fewer rows or keys than these are quicker one by one.
inline constexpr std::size_t kWorthGathering = 64;

/// Whether the fused kernel can compute runs of this call: what a mask, a bias or ALiBi says of a key would
/// no longer be true of its place among others. (Causality and windows are in the runs.)
bool can_gather(const Problem& p);

/// Writes to sums [B, H, Lq] what each row gives to its run. NaN where the row's lse is.
void fill_runs(const Problem& p, const Operand& lse, const KeyRuns& runs, const Target& sums);

}  // namespace heed::detail
