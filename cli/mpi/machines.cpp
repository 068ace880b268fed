#include "mpi/machines.hpp"

#include "heed/error.hpp"

namespace heed::cli {
namespace {

std::int64_t size_of_axis(const Dims& shape, int from_end) {
  return shape.size() < from_end ? 1 : shape[shape.size() - from_end];
}

distributed::Results results_of(const AttentionOptions& options) {
  if (has(options.need, Need::received) || options.received_last > 0 || options.map.rows > 0)
    return distributed::Results::sums;
  for (std::size_t i = 0; i < kResultCount; ++i)
    if (const ResultEntry& entry = result_entry(i); has(options.need, entry.need) && !takes_one_pass(entry))
      return distributed::Results::weights;
  return distributed::Results::of_rows;
}

}  // namespace

std::optional<distributed::SchemePlan> plan_of(const AttendInputs& inputs, const distributed::Layout& layout,
                                               const distributed::Machines& machines,
                                               distributed::Scheme scheme, bool gradients) {
  const AttentionOptions& options = inputs.options;
  distributed::PlannedCall call;
  call.batch = size_of_axis(inputs.query_shape, 4);
  call.heads = size_of_axis(inputs.query_shape, 3);
  call.kv_heads = size_of_axis(inputs.key_shape, 3);
  call.head_dim = inputs.query_shape.back();
  call.value_dim = inputs.value_shape.back();
  call.element_bytes = static_cast<int>(size_of(inputs.query.dtype()));
  call.causal = options.causal;
  call.window = options.window;
  const std::int64_t end_offset = layout.key.length() - layout.query.length();
  call.query_offset = options.query_offset.value_or(options.align == Align::bottom_right ? end_offset : 0);
  call.gradients = gradients;
  call.results = gradients ? distributed::Results::of_rows : results_of(options);
  try {
    for (const distributed::SchemePlan& plan : distributed::plan(call, machines, layout.query, layout.key))
      if (plan.scheme == scheme && plan.possible) return plan;
  } catch (const Error&) {  // the cost model does not support these sizes
  }
  return std::nullopt;
}

}  // namespace heed::cli
