// attention_backward(): inputs, options -> checks -> plan -> kernel.
#include "heed/attention/backward.hpp"

#include "attention/check/backward_checks.hpp"
#include "attention/check/checks.hpp"
#include "attention/check/overlap.hpp"
#include "attention/execute/run.hpp"
#include "core/message.hpp"

namespace heed {

AttentionGradients attention_backward(const AttentionBackwardInputs& inputs, const AttentionOptions& options,
                                      const GradientRequest& request) {
  return detail::with_memory_errors([&] {
    detail::BackwardProblem problem = detail::check_backward(inputs, options);
    AttentionGradients gradients = detail::allocate_gradients(inputs, options, request, problem);
    detail::tell(detail::run(problem, options.kernel), gradients);
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
    const AttentionRun run = detail::run(problem, options.kernel);
    detail::recycle(problem.forward);
    return run;
  });
}

}  // namespace heed
