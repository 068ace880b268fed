// The C functions of differential attention. They copy the results to the caller's memory.
#include "attention/api/c_differential.hpp"

#include <string>

#include "attention/api/halves.hpp"
#include "attention/check/results.hpp"
#include "attention/problem/operands.hpp"

namespace heed::detail::c_api {
namespace {

// The results that are sums of signed weights; others are NULL.
ResultSet<const Tensor*> signed_results(const DifferentialResult& result) {
  ResultSet<const Tensor*> all;
  all.output = &result.output;
  all.weights = &result.weights;
  all.received = &result.received;
  all.received_last = &result.received_last;
  all.map = &result.map;
  return all;
}

// Requests the results that `views` has memory for.
void request(AttentionOptions& options, const AttentionOutputs& views) {
  for (std::size_t i = 0; i < kResultCount; ++i) {
    const ResultEntry& entry = result_entry(i);
    const MutableTensorView& view = result(views, i);
    if (!is_given(view)) continue;
    options.need |= entry.need;
    if (entry.shape == ResultShape::top_k) options.top_k = view.size(-1);
    if (entry.shape == ResultShape::map && view.rank() > 1) options.map = {view.size(-2), view.size(-1)};
    if (entry.shape == ResultShape::key_last && options.received_last == 0)
      refuse("received_last is 0 while ", entry.path, " is given; 1 or more is expected");
  }
}

void check_shape(const char* name, const TensorView& view, const Dims& shape) {
  if (view.shape() != shape) refuse(name, " has shape ", view.shape(), "; ", shape, " is expected");
}

// A result and the caller's memory for it.
struct Delivery {
  std::string name;
  const Tensor& from;
  MutableTensorView to;
};

// Copies results to memory that is given, if all of it is right.
void deliver_all(const std::vector<Delivery>& all) {
  for (const Delivery& one : all)
    if (is_given(one.to)) (void)target_of(one.name, one.to, one.from.shape(), one.from.dtype(), 0);
  for (const Delivery& one : all)
    if (is_given(one.to)) copy(one.from, one.to);
}

}  // namespace

DifferentialCall differential_call(const heed_tensor* query, const heed_tensor* lambda,
                                   const heed_attention_options* options,
                                   const heed_attention_outputs* outputs,
                                   const heed_attention_outputs* halves) {
  const auto nothing = nothing_given<heed_attention_outputs>();
  DifferentialCall call{view_of("query", query), view_of("lambda", lambda), forward_call(options, outputs),
                        forward_call(nullptr, halves == nullptr ? &nothing : halves)};
  AttentionOptions& how = call.whole.options;
  for (std::size_t i = 0; i < kResultCount; ++i)
    if (is_given(result(call.whole.outputs, i)) && result(signed_results({}), i) == nullptr)
      refuse(result_entry(i).path, " is given; a result of a softmax is expected in halves");
  request(how, call.whole.outputs);
  request(how, call.halves.outputs);
  return call;
}

void DifferentialCall::deliver(const DifferentialResult& result) const {
  const ResultSet<const Tensor*> own = signed_results(result);
  std::vector<Delivery> all;
  for (std::size_t i = 0; i < kResultCount; ++i) {
    const std::string name(result_entry(i).name());
    if (const Tensor* tensor = heed::result(own, i))
      all.push_back({"outputs." + name, *tensor, heed::result(whole.outputs, i)});
    const MutableTensorView& to = heed::result(halves.outputs, i);
    if (!is_given(to)) continue;
    const Tensor& first = heed::result<Tensor>(result.first, i);
    Dims shape = first.shape();
    shape[1] *= 2;
    check_shape(("halves." + name).c_str(), to, shape);
    all.push_back({"halves." + name, first, heads_of(to, 0)});
    all.push_back({"halves." + name, heed::result<Tensor>(result.second, i), heads_of(to, 1)});
  }
  deliver_all(all);
  const AttentionRun run{result.first.kernel, result.first.isa, result.first.threads,
                         result.first.recomputed_rows + result.second.recomputed_rows};
  whole.report.tell(run);
  halves.report.tell(run);
}

}  // namespace heed::detail::c_api

using heed::Tensor;
using heed::TensorView;
using heed::detail::heads_of;
using heed::detail::is_given;
using heed::detail::refuse;
using heed::detail::c_api::backward_call;
using heed::detail::c_api::BackwardCall;
using heed::detail::c_api::check_shape;
using heed::detail::c_api::deliver_all;
using heed::detail::c_api::differential_call;
using heed::detail::c_api::DifferentialCall;
using heed::detail::c_api::guarded;
using heed::detail::c_api::view_of;

heed_status heed_differential_attention(const heed_tensor* query, const heed_tensor* key,
                                        const heed_tensor* value, const heed_tensor* lambda,
                                        const heed_attention_options* options,
                                        const heed_attention_outputs* outputs,
                                        const heed_attention_outputs* halves) {
  return guarded([&] {
    const TensorView k = view_of("key", key), v = view_of("value", value);
    const DifferentialCall call = differential_call(query, lambda, options, outputs, halves);
    call.deliver(heed::differential_attention(call.query, k, v, call.lambda, call.whole.options));
  });
}

heed_status heed_differential_attention_backward(const heed_attention_backward_inputs* inputs,
                                                 const heed_tensor* lambda,
                                                 const heed_attention_options* options,
                                                 const heed_attention_gradients* gradients,
                                                 const heed_tensor* grad_lambda) {
  return guarded([&] {
    const BackwardCall call = backward_call(inputs, options, gradients);
    const TensorView factors = view_of("lambda", lambda);
    const heed::AttentionBackwardInputs& from = call.inputs;
    const heed::AttentionGradientViews& to = call.gradients;
    if (from.grad_lse || from.grad_weights || is_given(to.bias) || is_given(to.sinks) || is_given(to.decay) ||
        call.report.run != nullptr || call.report.recomputed_rows != nullptr)
      refuse(
          "more than query, key, value and their gradients is given; NULL is expected for other members in "
          "differential attention");
    heed::DifferentialResult result;
    if (from.query.rank() == 4 && from.value.rank() == 4) {  // the call below refuses other ranks
      const heed::Dims rows{from.query.size(0), from.query.size(1), from.query.size(2)};
      check_shape("inputs.lse", from.lse, rows);
      check_shape("inputs.output", from.output, {rows[0], rows[1], rows[2], from.value.size(3)});
      for (const std::int64_t half : {0, 1}) {
        heed::AttentionResult& softmax = half == 0 ? result.first : result.second;
        softmax.output = Tensor::copy_of(heads_of(from.output, half));
        softmax.lse = Tensor::copy_of(heads_of(from.lse, half));
      }
    }
    heed::MutableTensorView by_lambda;
    heed::detail::c_api::set(by_lambda, "grad_lambda", grad_lambda);
    const heed::DifferentialGradients found = heed::differential_attention_backward(
        from.query, from.key, from.value, factors, result, from.grad_output, call.options);
    deliver_all({{"gradients.query", found.query, to.query},
                 {"gradients.key", found.key, to.key},
                 {"gradients.value", found.value, to.value},
                 {"grad_lambda", found.lambda, by_lambda}});
  });
}
