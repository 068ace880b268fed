// Gradients by units. The gradients of query, key and value have the bits of one process.
#include <utility>
#include <vector>

#include "distributed/mpi/backward_call.hpp"
#include "distributed/mpi/by_units.hpp"
#include "distributed/mpi/schemes.hpp"
#include "distributed/mpi/unit_inputs.hpp"
#include "heed/attention/part.hpp"
#include "heed/error.hpp"

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

// The gradients of bias and sinks. The part of a bias that only one unit uses comes from the unit's rank.
// Parts that units share are summed in f64, and then over ranks.
class SharedGradients {
 public:
  SharedGradients(const Communicator& comm, const BackwardCall& call) : comm_(comm), call_(call) {
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

  /// Whether some are sums over units, which ranks round in another order than one process.
  [[nodiscard]] bool has_sums() const { return bias_is_sum_ || sinks_is_sum_; }
  /// Appends the gradients of single units to the other results.
  void add_results(std::vector<UnitResult>& results) const {
    const Call& forward = call_.forward;
    if (is_given(call_.grad_bias) && !bias_is_sum_)
      results.push_back({call_.grad_bias, call_.grad_bias.size(1) == 1 ? 1 : forward.group(),
                         call_.grad_bias_has_rows ? &forward.layout.query : nullptr});
    if (is_given(call_.grad_sinks) && !sinks_is_sum_)
      results.push_back({call_.grad_sinks.unsqueeze(0).unsqueeze(2).unsqueeze(3),
                         call_.grad_sinks.size(0) == 1 ? 1 : forward.group(), nullptr});
  }
  /// The destination of a unit's gradients: the results from number `first` on, or separate memory.
  struct OfUnit {
    Tensor bias, sinks;  ///< parts of a sum, f64
    MutableTensorView bias_view, sinks_view;
  };
  [[nodiscard]] OfUnit of_unit(std::vector<Tensor>& results, std::size_t first) const {
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
  void add(const Unit& unit, const OfUnit& shares) {
    if (bias_is_sum_) add_to(shares.bias, heads_of(bias_sum_.mutable_view(), unit, call_.forward.group()));
    if (sinks_is_sum_) {
      const std::int64_t count = shares.sinks.size(0);
      add_to(shares.sinks,
             sinks_sum_.mutable_view().narrow(0, sinks_sum_.size(0) == 1 ? 0 : unit.kv_head * count, count));
    }
  }
  /// Writes the sums over all ranks to the caller's views.
  void finish() {
    if (bias_is_sum_) {
      add_ranks(comm_, bias_sum_);
      const Tensor own = call_.grad_bias_has_rows
                             ? call_.forward.layout.query.shard(bias_sum_, 2, comm_.rank())
                             : std::move(bias_sum_);
      copy(own, call_.grad_bias);
    }
    if (sinks_is_sum_) {
      add_ranks(comm_, sinks_sum_);
      copy(sinks_sum_, call_.grad_sinks);
    }
  }

 private:
  const Communicator& comm_;
  const BackwardCall& call_;
  bool bias_is_sum_ = false, sinks_is_sum_ = false;
  Tensor bias_sum_, sinks_sum_;  // f64, for the whole call: [b, h, Lq or 1, Lk or 1], [H or 1]
};

std::vector<UnitResult> results_of(const BackwardCall& call) {
  const Call& forward = call.forward;
  std::vector<UnitResult> results;
  const auto add = [&](const MutableTensorView& view, std::int64_t each, const Sharding& sharding) {
    if (view.data() != nullptr) results.push_back({view, each, &sharding});
  };
  add(call.grad_query, forward.group(), forward.layout.query);
  add(call.grad_key, 1, forward.layout.key);
  add(call.grad_value, 1, forward.layout.key);
  return results;
}

class UlyssesBackward {
 public:
  UlyssesBackward(const Communicator& comm, const BackwardCall& call)
      : comm_(comm),
        call_(call),
        shared_(comm, call),
        results_(results_of(call)),
        own_results_(results_.size()) {
    shared_.add_results(results_);
  }

  [[nodiscard]] bool has_sums() const { return shared_.has_sums(); }

  Work run() {
    const Work work =
        ByUnits(comm_, call_.forward, backward_shards(call_), results_)
            .run([&](const Unit& unit, const UnitTensors& tensors, std::vector<Tensor>& results) {
              return differentiate(unit, tensors, results);
            });
    shared_.finish();
    return work;
  }

 private:
  AttentionRun differentiate(const Unit& unit, const UnitTensors& tensors, std::vector<Tensor>& results) {
    const UnitBackward own = unit_backward(call_, unit, tensors);
    std::size_t result = 0;
    const auto next = [&](const MutableTensorView& wanted) {
      return wanted.data() == nullptr ? MutableTensorView{} : results[result++].mutable_view().unsqueeze(0);
    };
    AttentionGradientViews views;
    views.query = next(call_.grad_query);
    views.key = next(call_.grad_key);
    views.value = next(call_.grad_value);
    SharedGradients::OfUnit shares = shared_.of_unit(results, own_results_);
    views.bias = shares.bias_view;
    views.sinks = shares.sinks_view;
    const PositionRange all{0, call_.forward.layout.query.length()};
    const AttentionRun run =
        attention_backward_part_into(own.inputs, own.options, call_.forward.part_of(unit, {&all, 1}), views);
    shared_.add(unit, shares);
    return run;
  }

  const Communicator& comm_;
  const BackwardCall& call_;
  SharedGradients shared_;
  std::vector<UnitResult> results_;
  std::size_t own_results_;  // number of results before those of bias and sinks
};

}  // namespace

Work ulysses_backward(const Communicator& comm, const BackwardCall& call, bool deterministic) {
  UlyssesBackward pass(comm, call);
  if (deterministic && pass.has_sums())
    throw Error(ErrorCode::invalid_argument,
                "deterministic is true, but gradients of a bias or sinks shared by heads or batch entries "
                "are requested; ranks sum these in another order than one process");
  return pass.run();
}

}  // namespace heed::distributed
