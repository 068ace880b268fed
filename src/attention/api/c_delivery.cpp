#include "attention/api/c_delivery.hpp"

#include <algorithm>
#include <iterator>

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

SeeResults check_of(const ForwardCall& call, const TensorView& query, const heed_tensor* halves) {
  return [&call, halves, given = query.dtype()](const AttentionResult& half) {
    // A signed result is one tensor for both halves.
    const Tensor* with_sign[] = {&half.output, &half.weights, &half.received, &half.received_last, &half.map};
    std::vector<MemoryUse> all;
    const auto check = [&](const char* name, const MutableTensorView& to, const Tensor& from, bool is_signed,
                           DType dtype) {
      Dims shape = from.shape();
      if (!is_signed && shape.size() > 1) shape[1] *= 2;
      expect_memory(name, to, shape, dtype, all);
    };
    for (std::size_t i = 0; i < kResultCount; ++i) {
      const Tensor& from = heed::result<Tensor>(half, i);
      const bool is_signed =
          std::find(std::begin(with_sign), std::end(with_sign), &from) != std::end(with_sign);
      const DType dtype = &from == &half.output ? call.options.output_dtype.value_or(given) : from.dtype();
      check(result_entry(i).path, heed::result(call.outputs, i), from, is_signed, dtype);
    }
    MutableTensorView both;
    if (halves != nullptr) set(both, "halves", halves);
    check("halves", both, half.output, false, half.output.dtype());
  };
}

void deliver(const DifferentialResult& result, const ForwardCall& call, const heed_tensor* halves) {
  const AttentionResult joint = joined(result);
  for (std::size_t i = 0; i < kResultCount; ++i)
    deliver(heed::result<Tensor>(joint, i), heed::result(call.outputs, i));
  if (halves != nullptr)
    deliver(joined_heads(result.first.output, result.second.output), view_of("halves", halves));
  call.report.tell({joint.kernel, joint.isa, joint.threads, joint.recomputed_rows});
}

void expect_memory(const char* name, const MutableTensorView& to, const Dims& shape, DType dtype,
                   std::vector<MemoryUse>& others) {
  if (!is_given(to)) return;
  const Output target = target_of(name, to, shape, dtype, 0);
  MemoryUse use{name, {target.data, target.dtype, {}}, {1, 1, 1, 1}};
  std::ranges::copy(target.stride, use.view.stride);
  std::ranges::copy(shape, use.size.begin());
  for (const MemoryUse& other : others) check_overlap(use, other);
  others.push_back(use);
}

void deliver(const Tensor& from, const MutableTensorView& to) {
  if (is_given(to)) copy(from, to);
}

}  // namespace heed::detail::c_api
