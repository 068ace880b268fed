// Rows that the fused kernel left out, computed in f64.
#pragma once

#include <span>

#include "attention/kernels/shared/arguments.hpp"
#include "attention/problem/problem.hpp"

namespace heed::detail {

/// Recomputes the rows that `status` [B, H, Lq] marks, and the scores of those that `score_status` marks; it
/// may be empty. Sums over rows already contain the other rows. Returns how many rows it computed.
KernelRun recompute_rows(const Problem& problem, std::span<const cpu::RowStatus> status,
                         std::span<const cpu::RowStatus> score_status);

/// Adds the gradients of the rows that `status` marks as not done to the other rows' gradients, and writes
/// their dQ. Returns how many rows it computed.
KernelRun add_left_out_rows(const BackwardProblem& problem, std::span<const cpu::RowStatus> status);

}  // namespace heed::detail
