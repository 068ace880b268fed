// Attention on a part of a call: options -> checks -> plan -> kernel.
#include "heed/attention/part.hpp"

#include "attention/check/backward_checks.hpp"
#include "attention/check/checks.hpp"
#include "attention/check/overlap.hpp"
#include "attention/check/results.hpp"
#include "attention/execute/run.hpp"
#include "core/message.hpp"

namespace heed {
namespace {

void check_sums(const CallPart& part, const detail::Problem& problem) {
  if (problem.query_length == part.query_length) return;
  for (std::size_t i = 0; i < kResultCount; ++i)
    if (!has_rows(result_entry(i).shape) && result<detail::Output>(problem, i))
      detail::refuse(result_entry(i).path, " is given for ", problem.query_length, " of ", part.query_length,
                     " rows; all rows are expected for a result that sums over rows");
}

detail::Problem checked(const TensorView& query, const TensorView& key, const TensorView& value,
                        const AttentionOptions& options, const CallPart& part,
                        const AttentionOutputs& outputs) {
  detail::Problem problem = detail::check_call(query, key, value, options, &part);
  detail::bind_outputs(outputs, options, query.rank(), problem);
  detail::check_overlaps(problem);
  check_sums(part, problem);
  return problem;
}

}  // namespace

AttentionRun check_attention_part(const TensorView& query, const TensorView& key, const TensorView& value,
                                  const AttentionOptions& options, const CallPart& part,
                                  const AttentionOutputs& outputs) {
  return detail::with_memory_errors([&] {
    detail::Problem problem = checked(query, key, value, options, part, outputs);
    const detail::ExecutionPlan plan(problem, options.kernel);
    detail::recycle(problem);
    return AttentionRun{plan.kernel, plan.isa};
  });
}

AttentionRun attention_part_into(const TensorView& query, const TensorView& key, const TensorView& value,
                                 const AttentionOptions& options, const CallPart& part,
                                 const AttentionOutputs& outputs) {
  return detail::with_memory_errors([&] {
    detail::Problem problem = checked(query, key, value, options, part, outputs);
    const AttentionRun run = detail::run(problem, options.kernel);
    detail::recycle(problem);
    return run;
  });
}

AttentionRun check_backward_part(const AttentionBackwardInputs& inputs, const AttentionOptions& options,
                                 const CallPart& part, const AttentionGradientViews& gradients) {
  return detail::with_memory_errors([&] {
    detail::BackwardProblem problem = detail::check_backward(inputs, options, &part);
    detail::bind_gradients(gradients, inputs, options, problem);
    detail::check_overlaps(problem);
    const detail::BackwardPlan plan(problem, options.kernel);
    detail::recycle(problem.forward);
    return AttentionRun{plan.kernel, plan.isa};
  });
}

AttentionRun attention_backward_part_into(const AttentionBackwardInputs& inputs,
                                          const AttentionOptions& options, const CallPart& part,
                                          const AttentionGradientViews& gradients) {
  return detail::with_memory_errors([&] {
    detail::BackwardProblem problem = detail::check_backward(inputs, options, &part);
    if (problem.forward.query_length != part.query_length)
      detail::refuse("part.rows are ", problem.forward.query_length, " of ", part.query_length,
                     " rows; all rows are expected for gradients");
    detail::bind_gradients(gradients, inputs, options, problem);
    detail::check_overlaps(problem);
    const AttentionRun run = detail::run(problem, options.kernel);
    detail::recycle(problem.forward);
    return run;
  });
}

}  // namespace heed
