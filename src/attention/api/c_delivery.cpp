#include "attention/api/c_delivery.hpp"

#include "attention/api/halves.hpp"
#include "attention/check/results.hpp"
#include "attention/problem/operands.hpp"

namespace heed::detail::c_api {

AttentionOptions requests_of(const ForwardCall& call) {
  AttentionOptions options = call.options;
  for (std::size_t i = 0; i < kResultCount; ++i) {
    const ResultEntry& entry = result_entry(i);
    const MutableTensorView& view = result(call.outputs, i);
    if (!is_given(view)) continue;
    options.need |= entry.need;
    if (entry.shape == ResultShape::top_k) options.top_k = view.size(-1);
    if (entry.shape == ResultShape::map && view.rank() > 1) options.map = {view.size(-2), view.size(-1)};
    if (entry.shape == ResultShape::key_last && options.received_last == 0)
      refuse("received_last is 0 while ", entry.path, " is given; 1 or more is expected");
  }
  return options;
}

void deliver(const DifferentialResult& result, const ForwardCall& call, const heed_tensor* halves) {
  const AttentionResult joint = joined(result);
  std::vector<Delivery> all;
  for (std::size_t i = 0; i < kResultCount; ++i)
    all.push_back({result_entry(i).path, heed::result<Tensor>(joint, i), heed::result(call.outputs, i)});
  Tensor both;
  if (halves != nullptr) {
    both = joined_heads(result.first.output, result.second.output);
    all.push_back({"halves", both, {}});
    set(all.back().to, "halves", halves);
  }
  deliver(all);
  call.report.tell({joint.kernel, joint.isa, joint.threads, joint.recomputed_rows});
}

void deliver(const std::vector<Delivery>& all) {
  for (const Delivery& one : all)
    if (is_given(one.to)) (void)target_of(one.name, one.to, one.from.shape(), one.from.dtype(), 0);
  for (const Delivery& one : all)
    if (is_given(one.to)) copy(one.from, one.to);
}

}  // namespace heed::detail::c_api
