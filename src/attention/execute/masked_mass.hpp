// The weight that masks take from each row (AttentionResult::masked_mass).
#pragma once

#include <vector>

#include "attention/execute/row_sums.hpp"
#include "attention/problem/problem.hpp"

namespace heed::detail {

/// Writes problem.masked_mass from the rows' sums with and without the masks. Returns the rows that are left
/// to the reference, [B, H, Lq]; empty if none is.
std::vector<cpu::RowStatus> write_masked_mass(const Problem& problem, const RowSums& masked,
                                              const RowSums& unmasked);

}  // namespace heed::detail
