#include "distributed/mpi/shared_gradients.hpp"

#include <utility>

namespace heed::distributed {
namespace {

void add_to(const TensorView& share, const MutableTensorView& sum) {
  const Tensor terms = Tensor::copy_of(share);
  Tensor total = Tensor::copy_of(sum);
  for (std::size_t i = 0; i < total.values<double>().size(); ++i)
    total.values<double>()[i] += terms.values<double>()[i];
  copy(total, sum);
}

void add_ranks(const Communicator& comm, Tensor& sum) {
  const std::span<double> values = sum.values<double>();
  check(MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE, MPI_SUM,
                      comm.get()),
        "MPI_Allreduce");
}

}  // namespace

SharedGradients::SharedGradients(const Communicator& comm, const BackwardCall& call)
    : comm_(comm), call_(call) {
  const Call& forward = call.forward;
  if (is_given(call.grad_bias)) {
    const MutableTensorView& bias = call.grad_bias;
    bias_is_sum_ = (bias.size(0) != forward.batch() && forward.batch() > 1) ||
                   (bias.size(1) != forward.heads() && forward.kv_heads() > 1);
    if (bias_is_sum_)
      bias_sum_ = Tensor({bias.size(0), bias.size(1),
                          call.grad_bias_has_rows ? forward.layout.query.length() : 1, bias.size(3)},
                         DType::f64);
  }
  if (is_given(call.grad_sinks)) {
    sinks_is_sum_ =
        forward.batch() > 1 || (call.grad_sinks.size(0) != forward.heads() && forward.kv_heads() > 1);
    if (sinks_is_sum_) sinks_sum_ = Tensor({call.grad_sinks.size(0)}, DType::f64);
  }
}

void SharedGradients::add_results(std::vector<UnitResult>& results) const {
  const Call& forward = call_.forward;
  if (is_given(call_.grad_bias) && !bias_is_sum_)
    results.push_back({call_.grad_bias, call_.grad_bias.size(1) == 1 ? 1 : forward.group(),
                       call_.grad_bias_has_rows ? &forward.layout.query : nullptr});
  if (is_given(call_.grad_sinks) && !sinks_is_sum_)
    results.push_back({call_.grad_sinks.unsqueeze(0).unsqueeze(2).unsqueeze(3),
                       call_.grad_sinks.size(0) == 1 ? 1 : forward.group(), nullptr});
}

SharedGradients::OfUnit SharedGradients::of_unit(std::vector<Tensor>& results, std::size_t first) const {
  OfUnit unit;
  const std::int64_t group = call_.forward.group();
  if (bias_is_sum_) {
    const Dims& whole = bias_sum_.shape();
    unit.bias = Tensor({whole[1] == 1 ? 1 : group, whole[2], whole[3]}, DType::f64);
    unit.bias_view = unit.bias;
  } else if (is_given(call_.grad_bias)) {
    unit.bias_view = results[first++];
  }
  if (sinks_is_sum_) {
    unit.sinks = Tensor({sinks_sum_.size(0) == 1 ? 1 : group}, DType::f64);
    unit.sinks_view = unit.sinks;
  } else if (is_given(call_.grad_sinks)) {
    unit.sinks_view = results[first].mutable_view().select(2, 0).select(1, 0);
  }
  return unit;
}

void SharedGradients::add(const Unit& unit, const OfUnit& shares) {
  if (bias_is_sum_) add_to(shares.bias, heads_of(bias_sum_.mutable_view(), unit, call_.forward.group()));
  if (sinks_is_sum_) {
    const std::int64_t count = shares.sinks.size(0);
    add_to(shares.sinks,
           sinks_sum_.mutable_view().narrow(0, sinks_sum_.size(0) == 1 ? 0 : unit.kv_head * count, count));
  }
}

void SharedGradients::finish() {
  if (bias_is_sum_) {
    add_ranks(comm_, bias_sum_);
    const Tensor own = call_.grad_bias_has_rows ? call_.forward.layout.query.shard(bias_sum_, 2, comm_.rank())
                                                : std::move(bias_sum_);
    copy(own, call_.grad_bias);
  }
  if (sinks_is_sum_) {
    add_ranks(comm_, sinks_sum_);
    copy(sinks_sum_, call_.grad_sinks);
  }
}

}  // namespace heed::distributed
