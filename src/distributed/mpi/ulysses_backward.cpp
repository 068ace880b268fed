// Gradients by units. The gradients of query, key and value have the bits of one process.
#include <algorithm>
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

// The gradients of bias, sinks and decay. The part that only one unit uses comes from the unit's rank. Parts
// that units share are summed in f64, and then over ranks.
class SharedGradients {
 public:
  SharedGradients(const Communicator& comm, const BackwardCall& call) : comm_(comm), call_(call) {
    add_gradient(call.grad_bias, call.grad_bias_has_rows ? &call.forward.layout.query : nullptr);
    add_gradient(call.grad_sinks, nullptr);
    add_gradient(call.grad_decay, nullptr);
  }

  /// Whether some are sums over units, which ranks round in another order than one process.
  [[nodiscard]] bool has_sums() const {
    return call_.forward.batch() > 0 &&
           std::ranges::any_of(all_, [](const Gradient& one) { return one.is_sum; });
  }
  /// Appends the gradients of single units to the other results.
  void add_results(std::vector<UnitResult>& results) const {
    for (const Gradient& one : all_)
      if (!one.is_sum) results.push_back({one.own, one.each, one.rows});
  }
  /// The destinations [each, rows, columns] of a unit's gradients, for bias, sinks and decay as far as they
  /// are requested: the results from number `first` on, or separate memory for parts of a sum, in f64.
  struct OfUnit {
    std::vector<Tensor> parts;
    std::vector<MutableTensorView> views;
  };
  [[nodiscard]] OfUnit of_unit(std::vector<Tensor>& results, std::size_t first) const {
    OfUnit unit;
    for (const Gradient& one : all_) {
      Tensor& part = unit.parts.emplace_back();
      if (one.is_sum) part = Tensor({one.each, one.sum.size(2), one.sum.size(3)}, DType::f64);
      unit.views.push_back(one.is_sum ? part.mutable_view() : results[first++].mutable_view());
    }
    return unit;
  }
  void add(const Unit& unit, const OfUnit& shares) {
    for (std::size_t i = 0; i < all_.size(); ++i)
      if (all_[i].is_sum) add_to(shares.parts[i], heads_of(all_[i].sum.mutable_view(), unit, all_[i].each));
  }
  /// Writes the sums over all ranks to the caller's views.
  void finish() {
    for (Gradient& one : all_) {
      if (!one.is_sum) continue;
      add_ranks(comm_, one.sum);
      copy(one.rows == nullptr ? std::move(one.sum) : one.rows->shard(one.sum, 2, comm_.rank()), one.own);
    }
  }

 private:
  struct Gradient {
    MutableTensorView own;  // [B or 1, H or 1, rows, columns]
    std::int64_t each;      // heads of a unit: those of its group, or 1 if all heads share it
    const Sharding* rows;   // nullptr: every rank has all
    bool is_sum;            // over units
    Tensor sum;             // f64, with the rows of all ranks
  };

  void add_gradient(const MutableTensorView& own, const Sharding* rows) {
    if (!is_given(own)) return;
    const Call& forward = call_.forward;
    // A call without batch entries has no unit that would write a shared gradient.
    const bool is_sum =
        own.size(0) != forward.batch() || (own.size(1) != forward.heads() && forward.kv_heads() > 1);
    Gradient& one =
        all_.emplace_back(Gradient{own, own.size(1) == 1 ? 1 : forward.group(), rows, is_sum, {}});
    if (is_sum)
      one.sum =
          Tensor({own.size(0), own.size(1), rows == nullptr ? own.size(2) : rows->length(), own.size(3)},
                 DType::f64);
  }

  const Communicator& comm_;
  const BackwardCall& call_;
  std::vector<Gradient> all_;
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
    const SharedGradients::OfUnit shares = shared_.of_unit(results, own_results_);
    std::size_t share = 0;
    if (is_given(call_.grad_bias)) views.bias = shares.views[share++];
    if (is_given(call_.grad_sinks)) views.sinks = shares.views[share++].select(2, 0).select(1, 0);
    if (is_given(call_.grad_decay)) views.decay = shares.views[share].select(2, 0);
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
  std::size_t own_results_;  // number of results before those of bias, sinks and decay
};

}  // namespace

Work ulysses_backward(const Communicator& comm, const BackwardCall& call, bool deterministic) {
  UlyssesBackward pass(comm, call);
  if (deterministic && pass.has_sums())
    throw Error(ErrorCode::invalid_argument,
                "deterministic is true, but gradients of a bias, sinks or a decay shared by heads or batch "
                "entries are requested; ranks sum these in another order than one process");
  return pass.run();
}

}  // namespace heed::distributed
