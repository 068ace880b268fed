// The kernels. Each takes a checked Problem and writes every result that it has a Target for. None checks
// arguments or allocates results. A new one is a new file, a line here and a line in plan.cpp.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "attention/call/backward_problem.hpp"
#include "attention/call/problem.hpp"
#include "attention/cpu/kernel/arguments.hpp"
#include "attention/cpu/kernel/backward_arguments.hpp"

namespace heed::detail {

/// What a kernel says of a call that it has done.
struct KernelRun {
  int threads = 1;
  std::int64_t recomputed_rows = 0;  ///< rows that f32 could not hold
};

/// In f64, one row at a time, on one thread: the oracle that the others are tested against.
KernelRun run_reference(const Problem& problem);
/// Computes the rows of `status` again that run_fused left out (cpu::RowStatus; [B, H, Lq]), and the scores
/// of those of `score_status` (empty: none), in f64. Sums over rows have the other rows' shares already.
/// Returns how many rows it computed.
KernelRun recompute_rows(const Problem& problem, std::span<const cpu::RowStatus> status,
                         std::span<const cpu::RowStatus> score_status);

/// Tiled, vectorised, on many threads, for f32, bf16 and f16; memory O(L).
KernelRun run_fused(const Problem& problem);
/// Whether run_fused does this call: not for f64, and sizes that its working memory does not hold.
bool fused_supports(const Problem& problem);
/// The target that run_fused takes on this machine: "avx512", "avx2", "neon", "plain", …
std::string_view fused_isa();

/// The backward pass in f64, one row at a time; the key heads are shared out among threads.
KernelRun run_reference_backward(const BackwardProblem& problem);
/// Adds the gradients of the rows of `status` that are not done, in f64, to those of the others; dQ of these
/// rows is written. Returns how many rows it computed.
KernelRun add_left_out_rows(const BackwardProblem& problem, std::span<const cpu::RowStatus> status);

/// Tiled, vectorised, on many threads, for f32, bf16 and f16; memory O(L).
KernelRun run_fused_backward(const BackwardProblem& problem);

/// Some of the tasks of run_fused_backward (driver/backward_tasks.hpp): grad_key and grad_value of their
/// keys, and their parts of the query's gradient where they say.
struct ShareRun {
  int threads = 1;
  bool out_of_range = false;  ///< f32 does not hold it: what was written means nothing
};
ShareRun run_fused_share(const BackwardProblem& problem, std::vector<cpu::BackwardTask> tasks);

/// Parts of the query's gradient, and where their sum goes.
struct QueryPartsProblem {
  Operand parts;      ///< f32 [splits, rows, heads, D]; the last stride is 1
  Target grad_query;  ///< [-, heads, rows, D]
  std::int64_t splits, rows, heads, head_dim;
  double scale;
  DType grad_output;          ///< of the call that they belong to
  std::int64_t query_length;  ///< of its whole
  int threads;
};
void add_query_parts(const QueryPartsProblem& problem);

/// Whether run_fused_backward does this call: what run_fused does, without the weights' gradient.
bool fused_backward_supports(const BackwardProblem& problem);

}  // namespace heed::detail
