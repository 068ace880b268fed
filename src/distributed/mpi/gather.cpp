// Keys and values of one unit after the other arrive at every rank, the next unit's during this unit's
// computation. A rank computes its own rows against all keys; heed/attention/part.hpp gives them the bits of
// the whole call.
#include <memory>

#include "distributed/mpi/schemes.hpp"
#include "distributed/mpi/travel.hpp"
#include "heed/attention/part.hpp"

namespace heed::distributed {
namespace {

// Rows that a rank computes between two checks of its messages: so many that packing the keys again is a
// small share of the work.
constexpr std::int64_t kRowsAtOnce = 2048;

// Rows [begin, end) of a rank, as ranges of positions.
std::vector<PositionRange> some_rows(std::span<const PositionRange> ranges, std::int64_t begin,
                                     std::int64_t end) {
  std::vector<PositionRange> some;
  std::int64_t row = 0;
  for (const PositionRange& range : ranges) {
    const std::int64_t first = std::max(begin, row), last = std::min(end, row + range.end - range.begin);
    if (first < last) some.push_back({range.begin + first - row, range.begin + last - row});
    row += range.end - range.begin;
  }
  return some;
}

class Gather {
 public:
  Gather(const Communicator& comm, const Call& call, const AttentionOutputs& outputs)
      : comm_(comm),
        call_(call),
        outputs_(outputs),
        shards_{{call.key, 1, &call.layout.key}, {call.value, 1, &call.layout.key}},
        sends_(comm) {}

  Work run() {
    for (std::int64_t unit = 0; unit < call_.units(); ++unit)
      for (int to = 0; to < comm_.size(); ++to) send_unit(sends_, comm_, shards_, call_.unit(unit), unit, to);
    std::unique_ptr<UnitTensors> next = begin(0);
    for (std::int64_t unit = 0; unit < call_.units(); ++unit) {
      const std::unique_ptr<UnitTensors> keys = std::move(next);
      next = begin(unit + 1);
      keys->wait();
      attend(call_.unit(unit), (*keys)[0].unsqueeze(0), (*keys)[1].unsqueeze(0), next.get());
    }
    sends_.wait();
    work_.bytes_sent = sends_.bytes_sent();
    return work_;
  }

 private:
  std::unique_ptr<UnitTensors> begin(std::int64_t unit) const {
    if (unit >= call_.units()) return nullptr;
    return std::make_unique<UnitTensors>(comm_, shards_, call_.unit(unit), unit);
  }

  void attend(const Unit& unit, const TensorView& key, const TensorView& value, UnitTensors* next) {
    const std::int64_t rows = call_.query.size(2);
    const TensorView query = heads_of(call_.query, unit, call_.group()).unsqueeze(0);
    const AttentionOutputs outputs = outputs_of(call_, outputs_, unit);
    const std::int64_t step = next != nullptr ? kRowsAtOnce : rows;
    for (std::int64_t row = 0; row < rows; row += step) {
      const std::int64_t count = std::min(step, rows - row);
      const std::vector<PositionRange> some =
          some_rows(call_.layout.query.ranges(comm_.rank()), row, row + count);
      work_.add(attention_part_into(query.narrow(2, row, count), key, value,
                                    call_.options_of(unit, row, count), call_.part_of(unit, some),
                                    rows_of(outputs, row, count)));
      if (next != nullptr) next->test();
      sends_.test();
    }
  }

  const Communicator& comm_;
  const Call& call_;
  const AttentionOutputs& outputs_;
  const std::vector<Shard> shards_;
  Messages sends_;
  Work work_;
};

}  // namespace

Work gather(const Communicator& comm, const Call& call, const AttentionOutputs& outputs) {
  return Gather(comm, call, outputs).run();
}

}  // namespace heed::distributed
