#include "distributed/mpi/by_units.hpp"

#include <utility>

namespace heed::distributed {
namespace {

// The maximum number of units whose results are in flight.
constexpr std::size_t kUnitsSent = 2;

}  // namespace

ByUnits::ByUnits(const Communicator& comm, const Call& call, std::vector<Shard> inputs,
                 std::vector<UnitResult> results)
    : comm_(comm),
      call_(call),
      inputs_(std::move(inputs)),
      results_(std::move(results)),
      sends_(comm),
      receives_(comm) {}

Work ByUnits::run(const Compute& compute) {
  for (std::int64_t unit = 0; unit < call_.units(); ++unit) {
    if (rank_of(unit) == comm_.rank()) continue;
    send_unit(sends_, comm_, inputs_, call_.unit(unit), unit, rank_of(unit));
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
    Done& done = done_.emplace_back(comm_);
    done.results = memory_for_unit();
    work_.add(compute(call_.unit(current), *tensors, done.results));
    send_home(current, done);
    if (done_.size() > kUnitsSent) {
      finish(done_.front());
      done_.pop_front();
    }
  }
  sends_.wait();
  receives_.wait();
  for (Done& done : done_) finish(done);
  work_.bytes_sent += sends_.bytes_sent();
  return work_;
}

// Assigns runs of units, as even as possible.
int ByUnits::rank_of(std::int64_t unit) const {
  return static_cast<int>(unit * comm_.size() / call_.units());
}

std::int64_t ByUnits::next_own(std::int64_t unit) const {
  while (unit < call_.units() && rank_of(unit) != comm_.rank()) ++unit;
  return unit;
}

std::unique_ptr<UnitTensors> ByUnits::begin(std::int64_t unit) const {
  if (unit >= call_.units()) return nullptr;
  return std::make_unique<UnitTensors>(comm_, inputs_, call_.unit(unit), unit);
}

std::vector<PositionRange> ByUnits::rows_for(int rank, const UnitResult& result) const {
  if (result.sharding == nullptr) return {{0, result.own.size(2)}};
  const auto ranges = result.sharding->ranges(rank);
  return {ranges.begin(), ranges.end()};
}

std::vector<Tensor> ByUnits::memory_for_unit() const {
  std::vector<Tensor> memory;
  for (const UnitResult& result : results_) {
    const std::int64_t rows = result.sharding == nullptr ? result.own.size(2) : result.sharding->length();
    memory.push_back(Tensor::uninitialized({result.each, rows, result.own.size(3)}, result.own.dtype()));
  }
  return memory;
}

// Slots of results follow the inputs'.
void ByUnits::receive_results(std::int64_t unit) {
  for (std::size_t i = 0; i < results_.size(); ++i) {
    if (!results_[i].goes_home) continue;
    const MutableTensorView own = heads_of(results_[i].own, call_.unit(unit), results_[i].each);
    receives_.receive(own, side_by_side(rows_for(comm_.rank(), results_[i])), rank_of(unit),
                      tag_of(call_.units() + unit, i));
  }
}

void ByUnits::send_home(std::int64_t unit, Done& done) {
  for (std::size_t i = 0; i < results_.size(); ++i) {
    if (!results_[i].goes_home) continue;
    for (int to = 0; to < comm_.size(); ++to) {
      const std::vector<PositionRange> rows = rows_for(to, results_[i]);
      done.messages.send(done.results[i], rows, to, tag_of(call_.units() + unit, i));
      if (to == comm_.rank())
        collect_rows(done.results[i], rows, heads_of(results_[i].own, call_.unit(unit), results_[i].each));
    }
  }
}

void ByUnits::finish(Done& done) {
  done.messages.wait();
  work_.bytes_sent += done.messages.bytes_sent();
}

}  // namespace heed::distributed
