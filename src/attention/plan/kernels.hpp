// The kernels. Each takes a checked Problem and writes every result that has a Target. None checks arguments
// or allocates results. A new kernel needs a new file, a line here and a line in plan.cpp.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "attention/kernels/shared/arguments.hpp"
#include "attention/kernels/shared/backward_arguments.hpp"
#include "attention/problem/backward_problem.hpp"
#include "attention/problem/problem.hpp"

namespace heed::detail {

/// Statistics of a finished call.
struct KernelRun {
  int threads = 1;
  std::int64_t recomputed_rows = 0;  ///< rows whose values f32 could not hold
};

/// Computes in f64, row by row, on one thread. The other kernels are tested against it.
KernelRun run_reference(const Problem& problem);
/// Recomputes in f64 the rows of `status` [B, H, Lq] that run_fused left out (cpu::RowStatus). Also
/// recomputes the scores of the rows that `score_status` marks; it may be empty. Sums over rows already
/// contain the other rows. Returns how many rows it computed.
KernelRun recompute_rows(const Problem& problem, std::span<const cpu::RowStatus> status,
                         std::span<const cpu::RowStatus> score_status);

/// Tiled, vectorised and multithreaded, for f32, bf16 and f16; needs O(L) memory.
KernelRun run_fused(const Problem& problem);
/// Whether run_fused takes this call. It refuses f64, and sizes that do not fit its working memory.
bool fused_supports(const Problem& problem);
/// The target that run_fused uses on this machine: "avx512", "avx2", "neon", "plain", …
std::string_view fused_isa();

/// Computes the backward pass in f64, row by row; threads share the key heads.
KernelRun run_reference_backward(const BackwardProblem& problem);
/// Computes in f64 the rows that `status` marks as not done. Adds their gradients to the other rows'
/// gradients, and writes their dQ. Returns how many rows it computed.
KernelRun add_left_out_rows(const BackwardProblem& problem, std::span<const cpu::RowStatus> status);

/// Tiled, vectorised and multithreaded, for f32, bf16 and f16; needs O(L) memory.
KernelRun run_fused_backward(const BackwardProblem& problem);

/// Runs some of the tasks of run_fused_backward (execute/backward_tasks.hpp). Writes grad_key and grad_value
/// of their keys, and their parts of the query gradient where the tasks say.
struct ShareRun {
  int threads = 1;
  bool out_of_range = false;  ///< f32 cannot hold the values; the output is meaningless
};
ShareRun run_fused_share(const BackwardProblem& problem, std::vector<cpu::BackwardTask> tasks);

/// Parts of the query gradient, and the target of their sum.
struct QueryPartsProblem {
  Operand parts;      ///< f32 [splits, rows, heads, D]; the last stride is 1
  Target grad_query;  ///< [-, heads, rows, D]
  std::int64_t splits, rows, heads, head_dim;
  double scale;
  DType grad_output;          ///< dtype of grad_output in the call that the parts belong to
  std::int64_t query_length;  ///< query length of that whole call
  int threads;
};
void add_query_parts(const QueryPartsProblem& problem);

/// Whether run_fused_backward takes this call: run_fused takes its forward, and there is no grad_weights.
bool fused_backward_supports(const BackwardProblem& problem);

}  // namespace heed::detail
