#include "attention/execute/run.hpp"

#include "attention/execute/backward.hpp"
#include "attention/execute/forward.hpp"
#include "attention/plan/decay_skips.hpp"
#include "attention/reference/reference.hpp"

namespace heed::detail {

AttentionRun run(const Problem& problem, const ExecutionPlan& plan) {
  const KernelRun done = plan.kernel == Kernel::fused ? run_fused(problem, plan) : run_reference(problem);
  return {plan.kernel, plan.isa, done.threads, done.recomputed_rows};
}

AttentionRun run(const BackwardProblem& problem, const BackwardPlan& plan) {
  const KernelRun done =
      plan.kernel == Kernel::fused ? run_fused_backward(problem, plan) : run_reference_backward(problem);
  return {plan.kernel, plan.isa, done.threads, done.recomputed_rows};
}

AttentionRun run(const Problem& problem, Kernel wanted) {
  const DecaySkips skips(problem, wanted);
  if (!skips) return run(problem, ExecutionPlan(problem, wanted));
  Problem shorter = problem;
  shorter.sparse_masks.push_back(skips.mask());
  return run(shorter, ExecutionPlan(shorter, wanted));
}

AttentionRun run(const BackwardProblem& problem, Kernel wanted) {
  const DecaySkips skips(problem, wanted);
  if (!skips) return run(problem, BackwardPlan(problem, wanted));
  BackwardProblem shorter = problem;
  shorter.forward.sparse_masks.push_back(skips.mask());
  return run(shorter, BackwardPlan(shorter, wanted));
}

}  // namespace heed::detail
