// plan_attention(): options -> checks -> plan -> words.
#include "heed/attention/plan.hpp"

#include "attention/check/backward_checks.hpp"
#include "attention/check/checks.hpp"
#include "attention/check/results.hpp"
#include "attention/plan/words.hpp"
#include "core/message.hpp"

namespace heed {

AttentionPlan plan_attention(const TensorView& query, const TensorView& key, const TensorView& value,
                             const AttentionOptions& options) {
  return detail::with_memory_errors([&] {
    detail::Problem problem = detail::check_call(query, key, value, options);
    const std::size_t bytes = detail::expect_results(problem, options);
    AttentionPlan plan = detail::in_words(problem, options.kernel);
    plan.result_bytes = bytes;
    detail::recycle(problem);
    return plan;
  });
}

AttentionPlan plan_attention_backward(const AttentionBackwardInputs& inputs, const AttentionOptions& options,
                                      const GradientRequest& request) {
  return detail::with_memory_errors([&] {
    detail::BackwardProblem problem = detail::check_backward(inputs, options);
    AttentionGradients gradients = detail::allocate_gradients(inputs, options, request, problem);
    AttentionPlan plan = detail::in_words(problem, options.kernel);
    for (const Tensor* one : {&gradients.query, &gradients.key, &gradients.value, &gradients.bias,
                              &gradients.sinks, &gradients.decay})
      plan.result_bytes += static_cast<std::size_t>(one->count()) * size_of(one->dtype());
    detail::recycle(problem.forward);
    return plan;
  });
}

}  // namespace heed
