// attention(): options -> checks -> plan -> kernel.
#include "heed/attention/attention.hpp"

#include "attention/api/seen_results.hpp"
#include "attention/check/checks.hpp"
#include "attention/check/overlap.hpp"
#include "attention/check/results.hpp"
#include "attention/execute/run.hpp"
#include "core/message.hpp"

namespace heed {

AttentionResult attention(const TensorView& query, const TensorView& key, const TensorView& value,
                          const AttentionOptions& options) {
  return detail::attention(query, key, value, options, [](const AttentionResult&) {});
}

AttentionResult detail::attention(const TensorView& query, const TensorView& key, const TensorView& value,
                                  const AttentionOptions& options, const SeeResults& see) {
  return detail::with_memory_errors([&] {
    detail::Problem problem = detail::check_call(query, key, value, options);
    AttentionResult result = detail::allocate_results(problem, options, query.rank());
    detail::bind_outputs(detail::views_of(result), options, query.rank(), problem);
    see(result);
    detail::tell(detail::run(problem, options.kernel), result);
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
    const AttentionRun run = detail::run(problem, options.kernel);
    detail::recycle(problem);
    return run;
  });
}

}  // namespace heed
