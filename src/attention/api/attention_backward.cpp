// attention_backward(): inputs, options -> checks -> plan -> kernel.
#include "heed/attention/backward.hpp"

#include "attention/check/backward_checks.hpp"
#include "attention/check/checks.hpp"
#include "attention/check/overlap.hpp"
#include "attention/plan/plan.hpp"
#include "core/memory_errors.hpp"

namespace heed {

AttentionGradients attention_backward(const AttentionBackwardInputs& inputs, const AttentionOptions& options,
                                      const GradientRequest& request) {
  return detail::with_memory_errors([&] {
    detail::BackwardProblem problem = detail::check_backward(inputs, options);
    const detail::BackwardPlan plan = detail::make_backward_plan(problem, options.kernel);
    AttentionGradients gradients = detail::allocate_gradients(inputs, options, request);
    detail::bind_gradients({gradients.query, gradients.key, gradients.value, gradients.bias, gradients.sinks},
                           inputs, options, problem);
    const detail::KernelRun run = plan.kernel(problem);
    gradients.threads = run.threads;
    gradients.recomputed_rows = run.recomputed_rows;
    gradients.kernel = plan.name;
    gradients.isa = plan.isa;
    detail::recycle(problem.forward);
    return gradients;
  });
}

AttentionRun attention_backward_into(const AttentionBackwardInputs& inputs, const AttentionOptions& options,
                                     const AttentionGradientViews& gradients) {
  return detail::with_memory_errors([&] {
    detail::BackwardProblem problem = detail::check_backward(inputs, options);
    detail::bind_gradients(gradients, inputs, options, problem);
    detail::check_overlaps(problem);
    const detail::BackwardPlan plan = detail::make_backward_plan(problem, options.kernel);
    const detail::KernelRun run = plan.kernel(problem);
    detail::recycle(problem.forward);
    return AttentionRun{plan.name, plan.isa, run.threads, run.recomputed_rows};
  });
}

}  // namespace heed
