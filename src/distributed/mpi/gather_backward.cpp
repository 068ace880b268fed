// Gradients by shares of the keys (heed/attention/backward_share.hpp). Every rank with tasks of a unit gets
// all rows and keys of the unit, the next unit's during this unit's computation. Gradients of keys travel to
// the ranks of the keys. The parts of a row's gradient travel to the rank of the row, which adds them in the
// order of the splits. So the bits agree with one process.
#include <algorithm>
#include <memory>
#include <numeric>

#include "distributed/mpi/gradient_shares.hpp"
#include "distributed/mpi/schemes.hpp"
#include "distributed/mpi/travel.hpp"
#include "distributed/mpi/unit_inputs.hpp"
#include "heed/attention/backward_share.hpp"
#include "heed/attention/part.hpp"

namespace heed::distributed {
namespace {

Dims dims(std::initializer_list<std::int64_t> sizes) { return Dims(sizes); }

class GatherBackward {
 public:
  GatherBackward(const Communicator& comm, const BackwardCall& call)
      : comm_(comm),
        call_(call),
        forward_(call.forward),
        rows_(forward_.layout.query),
        keys_(forward_.layout.key),
        all_{0, rows_.length()},
        inputs_(backward_shards(call)),
        sends_(comm) {}

  // Finds the tasks of all units; returns whether the call can be shared by keys.
  bool plan() {
    std::vector<std::int64_t> load(static_cast<std::size_t>(comm_.size()));
    for (std::int64_t unit = 0; unit < forward_.units(); ++unit) {
      const std::vector<GradientTask> tasks =
          gradient_tasks(dims({1, forward_.group(), rows_.length(), forward_.query.size(3)}),
                         dims({1, 1, keys_.length(), forward_.key.size(3)}),
                         dims({1, 1, keys_.length(), forward_.value.size(3)}), forward_.query.dtype(),
                         options_of_shapes(unit), part_of(unit));
      if (tasks.empty()) return false;
      place(tasks, load);
    }
    return true;
  }

  // Returns false if f32 cannot hold a row.
  bool run(Work& work) {
    clear(call_.grad_key);
    clear(call_.grad_value);
    for (std::int64_t unit = 0; unit < forward_.units(); ++unit)
      for (int to = 0; to < comm_.size(); ++to)
        if (has_tasks(unit, to)) send_unit(sends_, comm_, inputs_, forward_.unit(unit), unit, to);
    std::unique_ptr<UnitTensors> next = begin(0);
    for (std::int64_t unit = 0; unit < forward_.units(); ++unit) {
      const std::unique_ptr<UnitTensors> tensors = std::move(next);
      next = begin(unit + 1);
      const SharedUnit shared{forward_.unit(unit), part_of(unit), tasks_of(unit), first_slot_of(unit)};
      GradientShares shares(comm_, call_, shared);
      if (tensors != nullptr) {
        tensors->wait();
        const UnitBackward own = unit_backward(call_, shared.unit, *tensors);
        shares.compute(own.inputs, own.options, work);
      }
      shares.finish(work);
      out_of_range_ = out_of_range_ || shares.out_of_range();
    }
    sends_.wait();
    work.bytes_sent += sends_.bytes_sent();
    std::int64_t failed = out_of_range_ ? 1 : 0;
    comm_.take_largest({&failed, 1});
    return failed == 0;
  }

 private:
  // Options for finding tasks: only the shapes of mask and bias count, with the rows of all ranks.
  AttentionOptions options_of_shapes(std::int64_t unit) const {
    static const double anywhere[1] = {};
    AttentionOptions options = forward_.options_of(forward_.unit(unit));
    for (std::optional<TensorView>* view : {&options.mask, &options.bias}) {
      if (!*view) continue;
      Dims shape = (*view)->shape();
      shape[2] = 1;
      *view = TensorView(anywhere, (*view)->dtype(), shape, Dims{0, 0, 0, shape[3] == 1 ? 0 : 1});
    }
    return options;
  }

  CallPart part_of(std::int64_t unit) const { return forward_.part_of(forward_.unit(unit), {&all_, 1}); }

  // Assigns tasks to ranks: the largest task first, to the rank with the least work so far.
  void place(const std::vector<GradientTask>& tasks, std::vector<std::int64_t>& load) {
    std::vector<PlacedTask>& placed = tasks_.emplace_back();
    for (const GradientTask& task : tasks) placed.push_back({task});
    std::vector<std::size_t> order(tasks.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, std::ranges::greater(), [&](std::size_t at) { return tasks[at].work; });
    for (const std::size_t at : order) {
      const auto least = std::ranges::min_element(load);
      *least += tasks[at].work;
      placed[at].rank = static_cast<int>(least - load.begin());
    }
  }

  const std::vector<PlacedTask>& tasks_of(std::int64_t unit) const {
    return tasks_[static_cast<std::size_t>(unit)];
  }
  bool has_tasks(std::int64_t unit, int rank) const {
    return std::any_of(tasks_of(unit).begin(), tasks_of(unit).end(),
                       [&](const PlacedTask& task) { return task.rank == rank; });
  }
  std::unique_ptr<UnitTensors> begin(std::int64_t unit) const {
    if (unit >= forward_.units() || !has_tasks(unit, comm_.rank())) return nullptr;
    return std::make_unique<UnitTensors>(comm_, inputs_, forward_.unit(unit), unit);
  }

  static void clear(const MutableTensorView& view) {
    if (view.data() == nullptr) return;
    const float zero = 0;
    copy(TensorView(&zero, Dims{1}).expand(view.shape()), view);
  }

  // Each task has a slot of tags, after the slots of the units.
  std::int64_t first_slot_of(std::int64_t unit) const {
    std::int64_t before = forward_.units();
    for (std::int64_t other = 0; other < unit; ++other)
      before += static_cast<std::int64_t>(tasks_of(other).size());
    return before;
  }

  const Communicator& comm_;
  const BackwardCall& call_;
  const Call& forward_;
  const Sharding &rows_, &keys_;
  const PositionRange all_;
  const std::vector<Shard> inputs_;
  std::vector<std::vector<PlacedTask>> tasks_;  // of each unit
  Messages sends_;
  bool out_of_range_ = false;
};

}  // namespace

bool gather_backward(const Communicator& comm, const BackwardCall& call, Work& work) {
  GatherBackward pass(comm, call);
  return pass.plan() && pass.run(work);
}

}  // namespace heed::distributed
