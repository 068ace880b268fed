// Tensors whose rows are spread over ranks, and gathering the rows of a unit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "distributed/mpi/call.hpp"
#include "distributed/mpi/messages.hpp"
#include "heed/attention/sharding.hpp"
#include "heed/tensor.hpp"

namespace heed::distributed {

/// A tensor [B, each * Hkv, rows of this rank, columns]; the first axes may be 1, which broadcasts.
struct Shard {
  TensorView view;
  std::int64_t each;
  const Sharding* sharding;
};

/// The rows of a unit from all ranks, on their way to one rank: [each, L, columns] for every shard.
class UnitTensors {
 public:
  /// Posts this rank's receives for the unit. `slot` distinguishes units in flight.
  UnitTensors(const Communicator& comm, const std::vector<Shard>& shards, const Unit& unit,
              std::int64_t slot);
  void wait() { messages_.wait(); }
  bool test() { return messages_.test(); }
  [[nodiscard]] TensorView operator[](std::size_t index) const { return whole_[index]; }

 private:
  std::vector<Tensor> whole_;
  Messages messages_;
};

/// Sends this rank's rows of a unit to another rank, to its UnitTensors of the same slot.
void send_unit(Messages& messages, const Communicator& comm, const std::vector<Shard>& shards,
               const Unit& unit, std::int64_t slot, int to);

/// A tag unique within a call: for tensor number `index` (below 32) of a slot.
[[nodiscard]] constexpr std::int64_t tag_of(std::int64_t slot, std::size_t index) {
  return slot * 32 + static_cast<std::int64_t>(index);
}

[[nodiscard]] std::vector<PositionRange> positions_in(const Sharding& sharding, int rank,
                                                      const PositionRange& range);
/// The rank's rows of these positions; they are contiguous.
[[nodiscard]] PositionRange rows_in(const Sharding& sharding, int rank, const PositionRange& range);
/// Ranges of the same lengths, one after the other from `first` on. They turn positions into rows.
[[nodiscard]] std::vector<PositionRange> side_by_side(std::span<const PositionRange> ranges,
                                                      std::int64_t first = 0);
/// Shifts ranges down by `by`.
[[nodiscard]] std::vector<PositionRange> moved(std::vector<PositionRange> ranges, std::int64_t by);

/// Copies consecutive rows of `from` to these rows of `into`; both [..., rows, columns].
void scatter_rows(const TensorView& from, const MutableTensorView& into, std::span<const PositionRange> rows);
/// Copies these rows of `from` to consecutive rows of `into`.
void collect_rows(const TensorView& from, std::span<const PositionRange> rows, const MutableTensorView& into);

}  // namespace heed::distributed
