#include "attention/execute/run.hpp"

#include "attention/execute/backward.hpp"
#include "attention/execute/forward.hpp"
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
  return run(problem, ExecutionPlan(problem, wanted));
}

AttentionRun run(const BackwardProblem& problem, Kernel wanted) {
  return run(problem, BackwardPlan(problem, wanted));
}

}  // namespace heed::detail
