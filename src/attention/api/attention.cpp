// attention(): options -> checks -> plan -> kernel.
#include "heed/attention/attention.hpp"

#include "attention/check/checks.hpp"
#include "attention/check/overlap.hpp"
#include "attention/plan/plan.hpp"
#include "attention/plan/results.hpp"
#include "core/memory_errors.hpp"

namespace heed {

AttentionResult attention(const TensorView& query, const TensorView& key, const TensorView& value,
                          const AttentionOptions& options) {
  return detail::with_memory_errors([&] {
    detail::Problem problem = detail::check_call(query, key, value, options);
    AttentionResult result = detail::allocate_results(problem, options, query.rank());
    detail::bind_outputs(detail::views_of(result), options, query.rank(), problem);
    const detail::Plan plan = detail::make_plan(problem, options.kernel);
    const detail::KernelRun run = plan.kernel(problem);
    result.threads = run.threads;
    result.recomputed_rows = run.recomputed_rows;
    result.kernel = plan.name;
    result.isa = plan.isa;
    detail::recycle(problem);
    return result;
  });
}

AttentionRun attention_into(const TensorView& query, const TensorView& key, const TensorView& value,
                            const AttentionOptions& options, const AttentionOutputs& outputs) {
  return detail::with_memory_errors([&] {
    detail::Problem problem = detail::check_call(query, key, value, options);
    detail::bind_outputs(outputs, options, query.rank(), problem);
    detail::check_overlaps(problem);
    const detail::Plan plan = detail::make_plan(problem, options.kernel);
    const detail::KernelRun run = plan.kernel(problem);
    detail::recycle(problem);
    return AttentionRun{plan.name, plan.isa, run.threads, run.recomputed_rows};
  });
}

}  // namespace heed
