// options -> checks -> plan -> kernel.
#include "heed/attention.hpp"

#include <new>

#include "attention/checks.hpp"
#include "attention/message.hpp"
#include "attention/plan.hpp"
#include "attention/results.hpp"

namespace heed {
namespace {

// Working memory of the checks and kernels is small beside the results, but it too can be refused.
template <class Work>
auto with_memory_errors(Work work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::out_of_memory, "no memory for the working space of attention");
  }
}

}  // namespace

AttentionResult attention(const TensorView& query, const TensorView& key, const TensorView& value,
                          const AttentionOptions& options) {
  return with_memory_errors([&] {
    detail::Problem problem = detail::check_call(query, key, value, options);
    const detail::Plan plan = detail::make_plan(problem, options.kernel);
    AttentionResult result = detail::allocate_results(problem, options, query.rank());
    detail::bind_outputs(detail::views_of(result), options, query.rank(), problem);
    result.threads = plan.kernel(problem);
    result.kernel = plan.name;
    result.isa = plan.isa;
    detail::recycle(problem);
    return result;
  });
}

AttentionRun attention_into(const TensorView& query, const TensorView& key, const TensorView& value,
                            const AttentionOptions& options, const AttentionOutputs& outputs) {
  return with_memory_errors([&] {
    detail::Problem problem = detail::check_call(query, key, value, options);
    detail::bind_outputs(outputs, options, query.rank(), problem);
    const detail::Plan plan = detail::make_plan(problem, options.kernel);
    const int threads = plan.kernel(problem);
    detail::recycle(problem);
    return AttentionRun{plan.name, plan.isa, threads};
  });
}

}  // namespace heed
