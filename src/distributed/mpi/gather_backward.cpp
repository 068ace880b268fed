// Gradients by shares of the keys (heed/backward_share.hpp). Every rank that has tasks of a unit gets all its
// rows and keys, the next unit's beside the computation of this one's. Gradients of keys go to where the keys
// are; the parts of a row's gradient go to where the row is, which adds them in the order of the splits. So
// bits are those of one process.
#include <algorithm>
#include <memory>
#include <numeric>

#include "distributed/mpi/schemes.hpp"
#include "distributed/mpi/travel.hpp"
#include "heed/backward_share.hpp"
#include "heed/part.hpp"

namespace heed::distributed {
namespace {

// Of a unit's tensors.
enum Input : std::size_t { kQuery, kKey, kValue, kOutput, kLse, kGradOutput, kGradLse };

// What travels for the tasks of a unit, in its slot.
constexpr std::size_t kInputs = 8;
enum Sent : std::size_t { kSentKey = kInputs, kSentValue, kSentPart };

struct PlacedTask {
  GradientTask task;
  int rank = 0;
};

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
        inputs_(inputs_of(call)),
        sends_(comm),
        gradients_(comm),
        parts_sent_(comm) {}

  // Whether the call can be shared by keys: what the tasks of all units are.
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

  // False where f32 does not hold a row.
  bool run(Work& work) {
    clear(call_.grad_key);
    clear(call_.grad_value);
    for (std::int64_t unit = 0; unit < forward_.units(); ++unit)
      for (int to = 0; to < comm_.size(); ++to)
        if (has_tasks(unit, to)) send_unit(sends_, comm_, inputs_, forward_.unit(unit), 2 * unit, to);
    std::unique_ptr<UnitTensors> next = begin(0);
    for (std::int64_t unit = 0; unit < forward_.units(); ++unit) {
      const std::unique_ptr<UnitTensors> tensors = std::move(next);
      next = begin(unit + 1);
      std::vector<Tensor> parts = receive_gradients(unit);
      if (tensors != nullptr) {
        tensors->wait();
        differentiate(unit, *tensors, work, parts);
      }
      gradients_.wait();
      add_parts(unit, parts);
      parts_sent_.wait();
    }
    sends_.wait();
    work.bytes_sent += sends_.bytes_sent() + parts_sent_.bytes_sent();
    std::int64_t failed = out_of_range_ ? 1 : 0;
    comm_.take_largest({&failed, 1});
    return failed == 0;
  }

 private:
  // What this rank computed of a unit.
  struct Share {
    Tensor key, value;         // [1, 1, Lk, columns]
    std::vector<float> parts;  // of each task, one after the other: [rows, group, D]
  };

  static std::vector<Shard> inputs_of(const BackwardCall& call) {
    const Call& forward = call.forward;
    const Sharding *rows = &forward.layout.query, *keys = &forward.layout.key;
    const std::int64_t group = forward.group();
    std::vector<Shard> inputs{{forward.query, group, rows}, {forward.key, 1, keys},
                              {forward.value, 1, keys},     {call.output, group, rows},
                              {call.lse, group, rows},      {call.grad_output, group, rows}};
    if (call.grad_lse) inputs.push_back({*call.grad_lse, group, rows});
    if (forward.mask_has_rows) inputs.push_back({*forward.options.mask, group, rows});
    if (forward.bias_has_rows) inputs.push_back({*forward.options.bias, group, rows});
    return inputs;
  }

  // As tasks need them: mask and bias by their shapes, with rows of all ranks.
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

  // The largest task first, to the rank with the least work so far.
  void place(const std::vector<GradientTask>& tasks, std::vector<std::int64_t>& load) {
    std::vector<PlacedTask>& placed = tasks_.emplace_back();
    for (const GradientTask& task : tasks) placed.push_back({task});
    std::vector<std::size_t> order(tasks.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return tasks[a].work > tasks[b].work; });
    for (const std::size_t at : order) {
      const auto least = std::min_element(load.begin(), load.end());
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
    return std::make_unique<UnitTensors>(comm_, inputs_, forward_.unit(unit), 2 * unit);
  }

  static void clear(const MutableTensorView& view) {
    if (view.data() == nullptr) return;
    const float zero = 0;
    copy(TensorView(&zero, Dims{1}).expand(view.shape()), view);
  }

  // Tasks of a unit are as many as 16 a segment: each has a slot of tags of its own.
  std::int64_t slot_of(std::int64_t unit, std::size_t task) const {
    std::int64_t before = 2 * forward_.units();
    for (std::int64_t other = 0; other < unit; ++other)
      before += static_cast<std::int64_t>(tasks_of(other).size());
    return before + static_cast<std::int64_t>(task);
  }

  // A unit's gradients of this rank's keys where they belong, and memory [rows of the rank, group, D] for the
  // part that each task has of its rows.
  std::vector<Tensor> receive_gradients(std::int64_t unit) {
    std::vector<Tensor> parts(tasks_of(unit).size());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto& [task, from] = tasks_of(unit)[i];
      const std::int64_t slot = slot_of(unit, i);
      const std::vector<PositionRange> keys = side_by_side(positions_in(keys_, comm_.rank(), task.keys),
                                                           rows_in(keys_, comm_.rank(), task.keys).begin);
      const auto receive_keys = [&](const MutableTensorView& view, std::size_t index) {
        if (view.data() == nullptr) return;
        gradients_.receive(heads_of(view, forward_.unit(unit), 1), keys, from, tag_of(slot, index));
      };
      receive_keys(call_.grad_key, kSentKey);
      receive_keys(call_.grad_value, kSentValue);
      const PositionRange rows = rows_in(rows_, comm_.rank(), task.rows);
      if (call_.grad_query.data() == nullptr || rows.begin == rows.end) continue;
      parts[i] = Tensor::uninitialized({1, rows.end - rows.begin, columns()}, DType::f32);
      gradients_.receive(parts[i], side_by_side(positions_in(rows_, comm_.rank(), task.rows)), from,
                         tag_of(slot, kSentPart));
    }
    return parts;
  }

  void differentiate(std::int64_t unit, const UnitTensors& tensors, Work& work, std::vector<Tensor>& parts) {
    const auto of = [&](std::size_t at) { return tensors[at].unsqueeze(0); };
    const auto rows_of = [&](std::size_t at) { return of(at).select(3, 0); };
    AttentionBackwardInputs inputs{of(kQuery),  of(kKey),      of(kValue),
                                   of(kOutput), rows_of(kLse), of(kGradOutput)};
    std::size_t at = kGradLse;
    if (call_.grad_lse) inputs.grad_lse = rows_of(at++);
    AttentionOptions options = forward_.options_of(forward_.unit(unit));
    if (forward_.mask_has_rows) options.mask = tensors[at++];
    if (forward_.bias_has_rows) options.bias = tensors[at];
    compute(unit, inputs, options, work);
    send_share(unit, parts);
  }

  std::int64_t columns() const { return forward_.group() * forward_.query.size(3); }

  void compute(std::int64_t unit, const AttentionBackwardInputs& inputs, const AttentionOptions& options,
               Work& work) {
    std::vector<std::int64_t> own;
    std::int64_t rows = 0;
    for (std::size_t i = 0; i < tasks_of(unit).size(); ++i) {
      const auto& [task, rank] = tasks_of(unit)[i];
      if (rank != comm_.rank()) continue;
      own.push_back(static_cast<std::int64_t>(i));
      rows += task.rows.end - task.rows.begin;
    }
    GradientShareViews views;
    const auto make = [&](const MutableTensorView& wanted, Tensor& memory, MutableTensorView& view) {
      if (wanted.data() == nullptr) return;
      memory = Tensor::uninitialized({1, 1, keys_.length(), wanted.size(3)}, wanted.dtype());
      view = memory;
    };
    make(call_.grad_key, share_.key, views.key);
    make(call_.grad_value, share_.value, views.value);
    if (call_.grad_query.data() != nullptr) {
      share_.parts.resize(static_cast<std::size_t>(rows * columns()));
      views.query_parts = share_.parts;
    }
    const GradientShareRun run = attention_backward_share_into(inputs, options, part_of(unit), own, views);
    work.add(AttentionRun{Kernel::fused, run.isa, run.threads, 0});
    out_of_range_ = out_of_range_ || run.out_of_range;
  }

  void send_share(std::int64_t unit, std::vector<Tensor>& own_parts) {
    const float* part = share_.parts.data();
    for (std::size_t i = 0; i < tasks_of(unit).size(); ++i) {
      const auto& [task, rank] = tasks_of(unit)[i];
      if (rank != comm_.rank()) continue;
      send_keys(unit, i, share_.key, call_.grad_key, kSentKey);
      send_keys(unit, i, share_.value, call_.grad_value, kSentValue);
      if (share_.parts.empty()) continue;
      const std::int64_t rows = task.rows.end - task.rows.begin;
      send_part(unit, i, TensorView(part, {1, rows, columns()}), own_parts[i]);
      part += rows * columns();
    }
  }

  void send_keys(std::int64_t unit, std::size_t at, const Tensor& share, const MutableTensorView& own,
                 std::size_t index) {
    if (own.data() == nullptr) return;
    const GradientTask& task = tasks_of(unit)[at].task;
    const TensorView rows = share.view().select(0, 0);
    for (int to = 0; to < comm_.size(); ++to) {
      const std::vector<PositionRange> keys = positions_in(keys_, to, task.keys);
      parts_sent_.send(rows, keys, to, tag_of(slot_of(unit, at), index));
      if (to != comm_.rank() || keys.empty()) continue;
      const PositionRange mine = rows_in(keys_, to, task.keys);
      collect_rows(rows, keys,
                   heads_of(own, forward_.unit(unit), 1).narrow(1, mine.begin, mine.end - mine.begin));
    }
  }

  void send_part(std::int64_t unit, std::size_t at, const TensorView& part, Tensor& own_part) {
    const GradientTask& task = tasks_of(unit)[at].task;
    for (int to = 0; to < comm_.size(); ++to) {
      const std::vector<PositionRange> rows = moved(positions_in(rows_, to, task.rows), task.rows.begin);
      parts_sent_.send(part, rows, to, tag_of(slot_of(unit, at), kSentPart));
      if (to == comm_.rank() && !rows.empty()) collect_rows(part, rows, own_part);
    }
  }

  // A row's gradient from the parts of all splits, which follow each other among the tasks.
  void add_parts(std::int64_t unit, const std::vector<Tensor>& parts) {
    if (call_.grad_query.data() == nullptr) return;
    const MutableTensorView own = heads_of(call_.grad_query, forward_.unit(unit), forward_.group());
    for (std::size_t first = 0; first < parts.size();) {
      const GradientTask& task = tasks_of(unit)[first].task;
      const auto splits = static_cast<std::size_t>(task.splits);
      const PositionRange rows = rows_in(rows_, comm_.rank(), task.rows);
      const std::int64_t count = rows.end - rows.begin;
      if (count > 0) {
        Tensor together =
            Tensor::uninitialized({task.splits, count, forward_.group(), forward_.query.size(3)}, DType::f32);
        for (std::size_t split = 0; split < splits; ++split)
          copy(parts[first + split].view().reshape({count, forward_.group(), forward_.query.size(3)}),
               together.mutable_view().select(0, static_cast<std::int64_t>(split)));
        add_gradient_parts(together, call_.grad_output.dtype(), forward_.options, part_of(unit),
                           own.narrow(1, rows.begin, count));
      }
      first += splits;
    }
  }

  const Communicator& comm_;
  const BackwardCall& call_;
  const Call& forward_;
  const Sharding &rows_, &keys_;
  const PositionRange all_;
  const std::vector<Shard> inputs_;
  std::vector<std::vector<PlacedTask>> tasks_;  // of each unit
  Share share_;                                 // on its way
  Messages sends_, gradients_, parts_sent_;
  bool out_of_range_ = false;
};

}  // namespace

bool gather_backward(const Communicator& comm, const BackwardCall& call, Work& work) {
  GatherBackward pass(comm, call);
  return pass.plan() && pass.run(work);
}

}  // namespace heed::distributed
