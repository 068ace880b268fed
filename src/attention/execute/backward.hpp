// The fused kernel's backward pass, as its plan says.
#pragma once

#include <cstdint>

#include "attention/plan/backward_plan.hpp"
#include "attention/problem/problem.hpp"

namespace heed::detail {

/// Writes every gradient that has an Output. The plan is one for the fused kernel.
KernelRun run_fused_backward(const BackwardProblem& problem, const BackwardPlan& plan);

/// Runs some of a call's tasks. Writes grad_key and grad_value of their keys, and their parts of the query
/// gradient where the tasks say.
struct ShareRun {
  int threads = 1;
  bool out_of_range = false;  ///< f32 cannot hold the values; the output is meaningless
};
ShareRun run_fused_share(const BackwardProblem& problem, const BackwardPlan& plan);

/// Parts of the query gradient, and the target of their sum.
struct QueryPartsProblem {
  Operand parts;      ///< f32 [splits, rows, heads, D]; the last stride is 1
  Output grad_query;  ///< [-, heads, rows, D]
  std::int64_t splits, rows, heads, head_dim;
  double scale;
  DType grad_output;          ///< dtype of grad_output in the call that the parts belong to
  std::int64_t query_length;  ///< query length of that whole call
  int threads;
};
void add_query_parts(const QueryPartsProblem& problem);

}  // namespace heed::detail
