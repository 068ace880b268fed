// options -> checks -> scheme -> gradients.

#include "attention/execute/run.hpp"
#include "core/message.hpp"
#include "core/tensor/lifted.hpp"
#include "distributed/mpi/agreement.hpp"
#include "distributed/mpi/backward_call.hpp"
#include "distributed/mpi/choose.hpp"
#include "distributed/mpi/own_calls.hpp"
#include "distributed/mpi/schemes.hpp"
#include "heed/error.hpp"

namespace heed::distributed {
namespace {

AttentionGradientViews allocate(const Communicator& comm, const BackwardGiven& given,
                                const GradientRequest& request, Gradients& gradients) {
  AttentionGradientViews views;
  agree(comm, [&] {
    const auto make = [&](bool wanted, const TensorView& view, bool repeats, Tensor& tensor,
                          MutableTensorView& to) {
      if (!wanted) return;
      tensor = Tensor(repeats ? heed::detail::own_shape(view) : view.shape(), view.dtype());
      to = tensor.mutable_view();
    };
    const auto require = [](bool wanted, const char* name, bool given_too) {
      if (wanted && !given_too) detail::refuse("request.", name, " is true, but the call has no ", name);
    };
    require(request.bias, "bias", given.options.bias.has_value());
    require(request.sinks, "sinks", given.options.sinks.has_value());
    require(request.decay, "decay", given.options.decay.has_value());
    make(request.query, given.inputs.query, false, gradients.query, views.query);
    make(request.key, given.inputs.key, false, gradients.key, views.key);
    make(request.value, given.inputs.value, false, gradients.value, views.value);
    if (request.bias) make(true, *given.options.bias, true, gradients.bias, views.bias);
    if (request.sinks) make(true, *given.options.sinks, true, gradients.sinks, views.sinks);
    if (request.decay) make(true, *given.options.decay, true, gradients.decay, views.decay);
  });
  return views;
}

// Whether ranks can share the keys of a unit.
bool is_shared_by_keys(const BackwardCall& call) {
  return !is_given(call.grad_bias) && !is_given(call.grad_sinks) && !is_given(call.grad_decay) &&
         !call.grad_weights;
}

void check_scheme(const BackwardCall& call, Scheme scheme) {
  if (scheme == Scheme::ring || scheme == Scheme::decode)
    detail::refuse("scheme is ", name_of(scheme), "; gather or ulysses is expected for gradients");
  if (scheme == Scheme::gather && !is_shared_by_keys(call))
    throw Error(ErrorCode::invalid_argument,
                "scheme is gather, which computes gradients of query, key and value only and accepts no "
                "grad_weights; ulysses is expected");
}

Scheme chosen(const Communicator& comm, const BackwardCall& call, const Choice& choice) {
  if (choice.scheme != Scheme::automatic) return choice.scheme;
  if (!is_shared_by_keys(call)) return Scheme::ulysses;
  return choose_scheme(comm, call.forward, choice, true, {Scheme::gather, Scheme::ulysses}, Scheme::ulysses);
}

Run backward_over(const Communicator& comm, const BackwardGiven& given, const AttentionGradientViews& views,
                  const Choice& choice) {
  const BackwardCall call = checked_backward(comm, given, views);
  agree_on_choice(comm, choice);
  check_scheme(call, choice.scheme);
  check_targets(comm, call.forward, choice.deterministic);
  if (choice.deterministic) check_bits(call.forward, true, "a mask of another form");
  Scheme scheme = chosen(comm, call, choice);
  Work work;
  if (scheme != Scheme::gather || !gather_backward(comm, call, work)) {
    scheme = Scheme::ulysses;
    work = ulysses_backward(comm, call, choice.deterministic);
  }
  return run_of(comm, call.forward, scheme, work);
}

}  // namespace

Gradients attention_backward(const Communicator& comm, const AttentionBackwardInputs& inputs,
                             const Layout& layout, const AttentionOptions& options,
                             const GradientRequest& request, const Choice& choice) {
  const BackwardGiven given{inputs, layout, options};
  Gradients gradients;
  const AttentionGradientViews views = allocate(comm, given, request, gradients);
  const Run run = backward_over(comm, given, views, choice);
  detail::tell(run, gradients);
  gradients.scheme = run.scheme;
  gradients.bytes_sent = run.bytes_sent;
  return gradients;
}

Run attention_backward_into(const Communicator& comm, const AttentionBackwardInputs& inputs,
                            const Layout& layout, const AttentionOptions& options,
                            const AttentionGradientViews& gradients, const Choice& choice) {
  return backward_over(comm, {inputs, layout, options}, gradients, choice);
}

Gradients attention_backward(MPI_Comm comm, const AttentionBackwardInputs& inputs, const Layout& layout,
                             const AttentionOptions& options, const GradientRequest& request,
                             const Choice& choice) {
  return attention_backward(Communicator(comm), inputs, layout, options, request, choice);
}

Run attention_backward_into(MPI_Comm comm, const AttentionBackwardInputs& inputs, const Layout& layout,
                            const AttentionOptions& options, const AttentionGradientViews& gradients,
                            const Choice& choice) {
  return attention_backward_into(Communicator(comm), inputs, layout, options, gradients, choice);
}

}  // namespace heed::distributed
