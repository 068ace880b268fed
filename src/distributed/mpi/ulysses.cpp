// Every unit has one rank, which gets all its rows and keys, computes it whole, and sends results back to
// where rows and keys are. The next unit's rows come in beside the computation of this one's.
#include <deque>
#include <memory>
#include <vector>

#include "distributed/mpi/schemes.hpp"
#include "distributed/mpi/travel.hpp"
#include "heed/part.hpp"

namespace heed::distributed {
namespace {

// Units whose results are on their way back, at most.
constexpr std::size_t kUnitsSent = 2;

std::vector<Shard> inputs_of(const Call& call) {
  const Layout& layout = call.layout;
  std::vector<Shard> shards{
      {call.query, call.group(), &layout.query}, {call.key, 1, &layout.key}, {call.value, 1, &layout.key}};
  if (call.mask_has_rows) shards.push_back({*call.options.mask, call.group(), &layout.query});
  if (call.bias_has_rows) shards.push_back({*call.options.bias, call.group(), &layout.query});
  return shards;
}

// Results of a unit and the messages that take them home.
struct Done {
  explicit Done(const Communicator& comm) : messages(comm) {}
  ResultSet<Tensor> results;
  Messages messages;
};

class Ulysses {
 public:
  Ulysses(const Communicator& comm, const Call& call, const AttentionOutputs& outputs)
      : comm_(comm), call_(call), outputs_(outputs), shards_(inputs_of(call)), sends_(comm), results_(comm) {}

  Work run() {
    for (std::int64_t unit = 0; unit < call_.units(); ++unit)
      if (rank_of(unit) != comm_.rank()) {
        send_unit(sends_, shards_, call_.unit(unit), unit, rank_of(unit));
        receive_results(unit);
      }
    std::int64_t unit = next_own(0);
    std::unique_ptr<UnitTensors> next = begin(unit);
    while (next) {
      const std::unique_ptr<UnitTensors> tensors = std::move(next);
      const std::int64_t current = unit;
      unit = next_own(unit + 1);
      next = begin(unit);
      tensors->wait();
      attend(current, *tensors);
    }
    sends_.wait();
    results_.wait();
    for (Done& done : done_) finish(done);
    work_.bytes_sent += sends_.bytes_sent();
    return work_;
  }

 private:
  // Runs of units, as even as they can be.
  int rank_of(std::int64_t unit) const { return static_cast<int>(unit * comm_.size() / call_.units()); }
  std::int64_t next_own(std::int64_t unit) const {
    while (unit < call_.units() && rank_of(unit) != comm_.rank()) ++unit;
    return unit;
  }
  std::unique_ptr<UnitTensors> begin(std::int64_t unit) const {
    if (unit >= call_.units()) return nullptr;
    return std::make_unique<UnitTensors>(comm_, shards_, call_.unit(unit), unit);
  }

  // Which rows of a unit's result [group, first axis, columns] a rank gets.
  std::vector<PositionRange> rows_for(int rank, ResultShape shape, std::int64_t size) const {
    if (shape == ResultShape::map) return {{0, size}};
    const auto ranges = (has_rows(shape) ? call_.layout.query : call_.layout.key).ranges(rank);
    return {ranges.begin(), ranges.end()};
  }

  // Slots of results follow those of inputs.
  std::int64_t result_slot(std::int64_t unit) const { return call_.units() + unit; }

  MutableTensorView own_result(std::size_t i, const Unit& unit) const {
    return heads_of(result_rows(result(outputs_, i), result_entry(i).shape), unit, call_.group());
  }

  void receive_results(std::int64_t unit) {
    for (std::size_t i = 0; i < kResultCount; ++i) {
      if (result(outputs_, i).data() == nullptr) continue;
      const MutableTensorView into = own_result(i, call_.unit(unit));
      const PositionRange rows = own_rows(into);
      results_.receive(into, {&rows, 1}, rank_of(unit), tag_of(result_slot(unit), i));
    }
  }

  // A unit's results for all ranks.
  ResultSet<Tensor> results_of_unit() const {
    ResultSet<Tensor> results;
    for (std::size_t i = 0; i < kResultCount; ++i) {
      const MutableTensorView& view = result(call_.outputs, i);
      if (view.data() == nullptr) continue;
      Dims shape = view.shape();
      shape[0] = 1;
      shape[1] = call_.group();
      const ResultShape kind = result_entry(i).shape;
      if (kind != ResultShape::map)
        shape[2] = (has_rows(kind) ? call_.layout.query : call_.layout.key).length();
      result(results, i) = Tensor::uninitialized(shape, view.dtype());
    }
    return results;
  }

  void attend(std::int64_t index, const UnitTensors& tensors) {
    const Unit unit = call_.unit(index);
    AttentionOptions options = call_.options_of(unit);
    std::size_t at = 3;
    if (call_.mask_has_rows) options.mask = tensors[at++];
    if (call_.bias_has_rows) options.bias = tensors[at++];
    Done& done = done_.emplace_back(comm_);
    done.results = results_of_unit();
    AttentionOutputs outputs;
    for (std::size_t i = 0; i < kResultCount; ++i)
      if (result(call_.outputs, i).data() != nullptr)
        result(outputs, i) = result(done.results, i).mutable_view();
    const PositionRange all{0, call_.layout.query.length()};
    work_.add(attention_part_into(tensors[0].unsqueeze(0), tensors[1].unsqueeze(0), tensors[2].unsqueeze(0),
                                  options, call_.part_of(unit, {&all, 1}), outputs));
    send_home(index, done);
    if (done_.size() > kUnitsSent) {
      finish(done_.front());
      done_.pop_front();
    }
  }

  void send_home(std::int64_t index, Done& done) {
    for (std::size_t i = 0; i < kResultCount; ++i) {
      if (result(outputs_, i).data() == nullptr) continue;
      const ResultShape shape = result_entry(i).shape;
      const TensorView whole = result_rows(result(done.results, i).mutable_view(), shape).select(0, 0);
      for (int to = 0; to < comm_.size(); ++to) {
        const std::vector<PositionRange> rows = rows_for(to, shape, whole.size(1));
        done.messages.send(whole, rows, to, tag_of(result_slot(index), i));
        if (to == comm_.rank()) keep(whole, rows, own_result(i, call_.unit(index)));
      }
    }
  }

  static void keep(const TensorView& whole, const std::vector<PositionRange>& rows,
                   const MutableTensorView& own) {
    std::int64_t row = 0;
    for (const PositionRange& range : rows) {
      const std::int64_t count = range.end - range.begin;
      copy(whole.narrow(1, range.begin, count), own.narrow(1, row, count));
      row += count;
    }
  }

  void finish(Done& done) {
    done.messages.wait();
    work_.bytes_sent += done.messages.bytes_sent();
  }

  const Communicator& comm_;
  const Call& call_;
  const AttentionOutputs& outputs_;
  const std::vector<Shard> shards_;
  Messages sends_, results_;
  std::deque<Done> done_;
  Work work_;
};

}  // namespace

Work ulysses(const Communicator& comm, const Call& call, const AttentionOutputs& outputs) {
  return Ulysses(comm, call, outputs).run();
}

}  // namespace heed::distributed
