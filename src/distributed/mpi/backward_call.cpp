#include "distributed/mpi/backward_call.hpp"

#include <vector>

#include "core/message.hpp"
#include "distributed/mpi/agreement.hpp"
#include "heed/attention/part.hpp"

namespace heed::distributed {
namespace {

void check_like(const char* name, const MutableTensorView& view, const TensorView& like) {
  if (!is_given(view) || (view.shape() == like.shape() && view.dtype() == like.dtype())) return;
  detail::refuse(name, " has shape ", view.shape(), " and dtype ", view.dtype(), "; ", like.shape(), " and ",
                 like.dtype(), ", as in its tensor, are expected");
}

AttentionRun check_own(const Communicator& comm, const Given& given, const BackwardGiven& backward,
                       const AttentionGradientViews& gradients) {
  check_shards(comm, given);
  const std::int64_t keys = given.layout.key.length();
  AttentionBackwardInputs inputs = backward.inputs;
  inputs.key = of_all_ranks(given.key, keys);
  inputs.value = of_all_ranks(given.value, keys);
  check_like("gradients.key", gradients.key, given.key);
  check_like("gradients.value", gradients.value, given.value);
  AttentionGradientViews others = gradients;
  others.key = others.value = {};
  return check_backward_part(inputs, given.options, rank_part(comm, given), others);
}

std::vector<Common> asked_for(const AttentionBackwardInputs& inputs,
                              const AttentionGradientViews& gradients) {
  std::int64_t asked = 0;
  for (const MutableTensorView* view : {&gradients.query, &gradients.key, &gradients.value, &gradients.bias,
                                        &gradients.sinks, &gradients.decay})
    asked = 2 * asked + (is_given(*view) ? 1 : 0);
  // Whether batch entries or heads share a gradient decides which ranks send it.
  const auto size = [](const MutableTensorView& view, int axis) {
    return !is_given(view) ? 0 : view.rank() < axis ? 1 : view.size(-axis);
  };
  const auto dtype = [](const MutableTensorView& view) {
    return is_given(view) ? 1 + static_cast<std::int64_t>(view.dtype()) : 0;
  };
  return {{"the requested results, as bits,",
           4 * asked + (inputs.grad_lse ? 2 : 0) + (inputs.grad_weights ? 1 : 0)},
          {"the number of batch entries of gradients.bias, or 0,", size(gradients.bias, 4)},
          {"the number of heads of gradients.bias, or 0,", size(gradients.bias, 3)},
          {"the number of gradients.sinks, or 0,", size(gradients.sinks, 1)},
          {"the number of batch entries of gradients.decay, or 0,", size(gradients.decay, 3)},
          {"the number of heads of gradients.decay, or 0,", size(gradients.decay, 2)},
          {"the dtype of gradients.bias, as a number,", dtype(gradients.bias)},
          {"the dtype of gradients.sinks, as a number,", dtype(gradients.sinks)},
          {"the dtype of gradients.decay, as a number,", dtype(gradients.decay)}};
}

template <class View>
View lifted_if(const View& view, int rank) {
  return view.data() == nullptr ? view : lifted(view, rank);
}

}  // namespace

BackwardCall checked_backward(const Communicator& comm, const BackwardGiven& given,
                              const AttentionGradientViews& gradients) {
  const AttentionBackwardInputs& inputs = given.inputs;
  const Given forward{inputs.query, inputs.key, inputs.value, given.layout, given.options};
  AttentionRun target;
  agree(comm, [&] { target = check_own(comm, forward, given, gradients); });
  BackwardCall call{agreed_call(comm, forward, asked_for(inputs, gradients)),
                    lifted(inputs.output, 4),
                    lifted(inputs.lse, 3).unsqueeze(3),
                    lifted(inputs.grad_output, 4),
                    {},
                    {},
                    lifted_if(gradients.query, 4),
                    lifted_if(gradients.key, 4),
                    lifted_if(gradients.value, 4),
                    lifted_if(gradients.bias, 4),
                    lifted_if(gradients.sinks, 2),
                    lifted_if(gradients.decay, 3)};
  if (is_given(gradients.sinks)) call.grad_sinks = call.grad_sinks.unsqueeze(2).unsqueeze(3);
  if (is_given(gradients.decay)) call.grad_decay = call.grad_decay.unsqueeze(3);
  call.forward.target = target;
  if (is_given(gradients.bias))
    call.grad_bias_has_rows =
        has_rows_somewhere(comm, TensorView(gradients.bias), call.forward.query.size(2));
  if (inputs.grad_lse) call.grad_lse = lifted(*inputs.grad_lse, 3).unsqueeze(3);
  if (inputs.grad_weights) call.grad_weights = lifted(*inputs.grad_weights, 4);
  return call;
}

}  // namespace heed::distributed
