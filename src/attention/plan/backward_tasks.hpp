// The tasks of the fused backward pass. A task is a range of keys of one key head, and owns their gradients.
// If heads are few, the keys of a segment are split into several tasks; the split depends on the shape alone.
// A row's gradient is then the sum over the key splits, in their order. So bits do not depend on the threads.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/kernels/shared/backward_arguments.hpp"
#include "attention/problem/problem.hpp"

namespace heed::detail {

/// Returns all tasks of a call, in order of segment, key head and split.
std::vector<cpu::BackwardTask> backward_tasks(const BackwardProblem& problem);

/// Number of floats in the task's part of the query gradient.
std::int64_t query_part_size(const cpu::BackwardTask& task, std::int64_t head_dim);

/// Working memory of Kernels::add_query_parts, and the rows of one piece of its work.
std::size_t query_part_bytes(std::int64_t head_dim);
inline constexpr std::int64_t kRowsAtOnce = 256;

/// Number of row-key pairs of a task that positions allow (causal, windows), over all its query heads.
std::int64_t visible_cells(const Problem& problem, const cpu::BackwardTask& task);

/// Whether the lse of one head's rows of a segment is recomputed, from all keys of the segment.
bool recomputes_lse(const BackwardProblem& problem, const Segment& segment, std::int64_t head);

/// Whether grad_bias is summed over this axis, whose size in the call is `size`.
bool shares_bias(const BackwardProblem& problem, int axis, std::int64_t size);

}  // namespace heed::detail
