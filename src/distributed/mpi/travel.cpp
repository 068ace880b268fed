#include "distributed/mpi/travel.hpp"

#include <algorithm>

namespace heed::distributed {
std::vector<PositionRange> positions_in(const Sharding& sharding, int rank, const PositionRange& range) {
  std::vector<PositionRange> some;
  for (const PositionRange& own : sharding.ranges(rank)) {
    const PositionRange both{std::max(own.begin, range.begin), std::min(own.end, range.end)};
    if (both.begin < both.end) some.push_back(both);
  }
  return some;
}

PositionRange rows_in(const Sharding& sharding, int rank, const PositionRange& range) {
  const std::vector<PositionRange> positions = positions_in(sharding, rank, range);
  if (positions.empty()) return {0, 0};
  return {sharding.row_of(positions.front().begin), sharding.row_of(positions.back().end - 1) + 1};
}

std::vector<PositionRange> side_by_side(std::span<const PositionRange> ranges, std::int64_t first) {
  std::vector<PositionRange> rows;
  for (const PositionRange& range : ranges) {
    rows.push_back({first, first + range.end - range.begin});
    first = rows.back().end;
  }
  return rows;
}

std::vector<PositionRange> moved(std::vector<PositionRange> ranges, std::int64_t by) {
  for (PositionRange& range : ranges) range = {range.begin - by, range.end - by};
  return ranges;
}

void scatter_rows(const TensorView& from, const MutableTensorView& into,
                  std::span<const PositionRange> rows) {
  std::int64_t row = 0;
  for (const PositionRange& range : rows) {
    const std::int64_t count = range.end - range.begin;
    copy(from.narrow(-2, row, count), into.narrow(-2, range.begin, count));
    row += count;
  }
}

void collect_rows(const TensorView& from, std::span<const PositionRange> rows,
                  const MutableTensorView& into) {
  std::int64_t row = 0;
  for (const PositionRange& range : rows) {
    const std::int64_t count = range.end - range.begin;
    copy(from.narrow(-2, range.begin, count), into.narrow(-2, row, count));
    row += count;
  }
}

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
    scatter_rows(own, whole.mutable_view(), sharding.ranges(comm.rank()));
  }
}

void send_unit(Messages& messages, const Communicator& comm, const std::vector<Shard>& shards,
               const Unit& unit, std::int64_t slot, int to) {
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const TensorView own = heads_of(shards[i].view, unit, shards[i].each);
    messages.send(own, side_by_side(shards[i].sharding->ranges(comm.rank())), to, tag_of(slot, i));
  }
}

}  // namespace heed::distributed
