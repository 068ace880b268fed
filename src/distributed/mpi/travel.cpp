#include "distributed/mpi/travel.hpp"

namespace heed::distributed {
namespace {

void copy_rows(const TensorView& from, const MutableTensorView& into, std::span<const PositionRange> ranges) {
  std::int64_t row = 0;
  for (const PositionRange& range : ranges) {
    const std::int64_t count = range.end - range.begin;
    copy(from.narrow(1, row, count), into.narrow(1, range.begin, count));
    row += count;
  }
}

}  // namespace

UnitTensors::UnitTensors(const Communicator& comm, const std::vector<Shard>& shards, const Unit& unit,
                         std::int64_t slot)
    : messages_(comm) {
  whole_.reserve(shards.size());
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const TensorView own = heads_of(shards[i].view, unit, shards[i].each);
    const Sharding& sharding = *shards[i].sharding;
    Tensor& whole = whole_.emplace_back(
        Tensor::uninitialized({own.size(0), sharding.length(), own.size(2)}, own.dtype()));
    for (int rank = 0; rank < comm.size(); ++rank)
      messages_.receive(whole.mutable_view(), sharding.ranges(rank), rank, tag_of(slot, i));
    copy_rows(own, whole.mutable_view(), sharding.ranges(comm.rank()));
  }
}

void send_unit(Messages& messages, const std::vector<Shard>& shards, const Unit& unit, std::int64_t slot,
               int to) {
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const TensorView own = heads_of(shards[i].view, unit, shards[i].each);
    const PositionRange rows = own_rows(own);
    messages.send(own, {&rows, 1}, to, tag_of(slot, i));
  }
}

}  // namespace heed::distributed
