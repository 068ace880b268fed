// The tasks of the fused backward pass. A task is some keys of one key head, and owns their gradients. Where
// heads are few, the keys of a segment are split, by the shape alone; a row's gradient is then the sum over
// the key splits, in their order. So bits do not depend on who computes which task.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/call/backward_problem.hpp"
#include "attention/cpu/kernel/backward_arguments.hpp"

namespace heed::detail {

/// All tasks of a call, in order of segment, key head and split.
std::vector<cpu::BackwardTask> backward_tasks(const BackwardProblem& problem);

/// How many floats its part of the query's gradient has.
std::int64_t query_part_size(const cpu::BackwardTask& task, std::int64_t head_dim);

/// Working memory for Kernels::add_query_parts, and how many rows make a piece of work for it.
std::size_t query_part_bytes(std::int64_t head_dim);
inline constexpr std::int64_t kRowsAtOnce = 256;

/// Cells of a task that its rows' positions leave them (causal, windows), of all its query heads.
std::int64_t visible_cells(const Problem& problem, const cpu::BackwardTask& task);

/// Whether the lse of the rows of one head and segment is recomputed, from all keys of the segment.
bool recomputes_lse(const BackwardProblem& problem, const Segment& segment, std::int64_t head);

/// Whether grad_bias is summed over an axis, which has this size.
bool shares_bias(const BackwardProblem& problem, int axis, std::int64_t size);

}  // namespace heed::detail
