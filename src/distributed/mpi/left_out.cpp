#include "distributed/mpi/left_out.hpp"

#include <set>

#include "distributed/mpi/travel.hpp"
#include "heed/attention/part.hpp"

namespace heed::distributed {
namespace {

class LeftOut {
 public:
  LeftOut(const Communicator& comm, const Call& call, const AttentionOutputs& outputs)
      : comm_(comm),
        call_(call),
        outputs_(outputs),
        shards_{{call.key, 1, &call.layout.key}, {call.value, 1, &call.layout.key}},
        sends_(comm),
        rows_(static_cast<std::size_t>(call.units())) {}

  Work run(std::span<const PartRow> rows) {
    const std::vector<std::int64_t> wanted = wanted_units(rows);
    for (std::int64_t unit = 0; unit < call_.units(); ++unit)
      for (int to = 0; to < comm_.size(); ++to)
        if (wants(wanted, to, unit)) send_unit(sends_, comm_, shards_, call_.unit(unit), unit, to);
    for (std::int64_t unit = 0; unit < call_.units(); ++unit)
      if (wants(wanted, comm_.rank(), unit)) compute(unit);
    sends_.wait();
    work_.bytes_sent = sends_.bytes_sent();
    return work_;
  }

 private:
  // For each rank and unit, whether the rank has left-out rows of it.
  std::vector<std::int64_t> wanted_units(std::span<const PartRow> rows) {
    std::vector<std::int64_t> wanted(static_cast<std::size_t>(comm_.size() * call_.units()));
    for (const PartRow& row : rows) {
      const std::int64_t unit = row.batch * call_.kv_heads() + row.head / call_.group();
      rows_[static_cast<std::size_t>(unit)].insert(row.row);
      wanted[static_cast<std::size_t>(comm_.rank() * call_.units() + unit)] = 1;
    }
    comm_.take_largest(wanted);
    return wanted;
  }
  bool wants(const std::vector<std::int64_t>& wanted, int rank, std::int64_t unit) const {
    return wanted[static_cast<std::size_t>(rank * call_.units() + unit)] != 0;
  }

  void compute(std::int64_t index) {
    const Unit unit = call_.unit(index);
    UnitTensors keys(comm_, shards_, unit, index);
    keys.wait();
    const TensorView query = heads_of(call_.query, unit, call_.group()).unsqueeze(0);
    const AttentionOutputs outputs = outputs_of(call_, outputs_, unit);
    for (const std::int64_t row : rows_[static_cast<std::size_t>(index)]) {
      const std::int64_t position = call_.layout.query.position(comm_.rank(), row);
      const PositionRange one{position, position + 1};
      work_.add(attention_part_into(query.narrow(2, row, 1), keys[0].unsqueeze(0), keys[1].unsqueeze(0),
                                    call_.options_of(unit, row, 1), call_.part_of(unit, {&one, 1}),
                                    rows_of(outputs, row, 1)));
    }
  }

  const Communicator& comm_;
  const Call& call_;
  const AttentionOutputs& outputs_;
  const std::vector<Shard> shards_;
  Messages sends_;
  std::vector<std::set<std::int64_t>> rows_;  // for each unit; the heads of a group share them
  Work work_;
};

}  // namespace

Work compute_left_out(const Communicator& comm, const Call& call, const AttentionOutputs& outputs,
                      std::span<const PartRow> rows) {
  auto any = std::ssize(rows);
  comm.take_largest({&any, 1});
  if (any == 0) return {};
  return LeftOut(comm, call, outputs).run(rows);
}

}  // namespace heed::distributed
