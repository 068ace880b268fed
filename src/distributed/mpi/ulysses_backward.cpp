// Gradients by units. The gradients of query, key and value have the bits of one process.
#include <vector>

#include "distributed/mpi/by_units.hpp"
#include "distributed/mpi/schemes.hpp"
#include "distributed/mpi/shared_gradients.hpp"
#include "distributed/mpi/unit_inputs.hpp"
#include "heed/attention/part.hpp"
#include "heed/error.hpp"

namespace heed::distributed {
namespace {

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
