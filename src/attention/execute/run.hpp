// Runs a checked call by its plan.
#pragma once

#include "attention/plan/backward_plan.hpp"
#include "attention/plan/execution_plan.hpp"
#include "heed/attention/attention.hpp"

namespace heed::detail {

/// Writes every result, or gradient, that has an Output.
AttentionRun run(const Problem& problem, const ExecutionPlan& plan);
AttentionRun run(const BackwardProblem& problem, const BackwardPlan& plan);

/// The fused kernel's forward pass (forward.cpp): writes every result that has an Output. The plan is one for
/// the fused kernel.
KernelRun run_fused(const Problem& problem, const ExecutionPlan& plan);

/// Plans and runs. Throws if `wanted` cannot take this call.
AttentionRun run(const Problem& problem, Kernel wanted);
AttentionRun run(const BackwardProblem& problem, Kernel wanted);

/// Sets the statistics of a call in its results or gradients.
template <class Results>
void tell(const AttentionRun& run, Results& results) {
  results.threads = run.threads;
  results.recomputed_rows = run.recomputed_rows;
  results.kernel = run.kernel;
  results.isa = run.isa;
}

}  // namespace heed::detail
