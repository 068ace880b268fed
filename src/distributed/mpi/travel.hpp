// Tensors of which every rank has some rows, and how a unit's rows come together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "distributed/mpi/call.hpp"
#include "distributed/mpi/messages.hpp"
#include "heed/sharding.hpp"
#include "heed/tensor.hpp"

namespace heed::distributed {

/// A tensor [B, each * Hkv, rows of this rank, columns], or with 1 for the first axes where it broadcasts.
struct Shard {
  TensorView view;
  std::int64_t each;
  const Sharding* sharding;
};

/// The rows of a unit, of all ranks, on their way to one of them: [each, L, columns] for every shard.
class UnitTensors {
 public:
  /// Posts what this rank receives of the unit. `slot` tells units under way apart from others.
  UnitTensors(const Communicator& comm, const std::vector<Shard>& shards, const Unit& unit,
              std::int64_t slot);
  /// Waits for all rows.
  void wait() { messages_.wait(); }
  bool test() { return messages_.test(); }
  [[nodiscard]] TensorView operator[](std::size_t index) const { return whole_[index]; }

 private:
  std::vector<Tensor> whole_;
  Messages messages_;
};

/// Sends this rank's rows of a unit to another rank, for its UnitTensors of the same slot.
void send_unit(Messages& messages, const Communicator& comm, const std::vector<Shard>& shards,
               const Unit& unit, std::int64_t slot, int to);

/// A tag that no other message of a call has: of tensor number `index` (below 32) of a slot.
[[nodiscard]] constexpr std::int64_t tag_of(std::int64_t slot, std::size_t index) {
  return slot * 32 + static_cast<std::int64_t>(index);
}

/// All rows of a view [..., rows, columns].
[[nodiscard]] inline PositionRange own_rows(const TensorView& view) { return {0, view.size(-2)}; }

/// The positions of a range that a rank has.
[[nodiscard]] std::vector<PositionRange> positions_in(const Sharding& sharding, int rank,
                                                      const PositionRange& range);
/// Its rows of them: they lie side by side.
[[nodiscard]] PositionRange rows_in(const Sharding& sharding, int rank, const PositionRange& range);
/// Ranges of the same lengths, one after the other from `first` on: rows where others are positions.
[[nodiscard]] std::vector<PositionRange> side_by_side(std::span<const PositionRange> ranges,
                                                      std::int64_t first = 0);
/// Ranges that begin `by` earlier.
[[nodiscard]] std::vector<PositionRange> moved(std::vector<PositionRange> ranges, std::int64_t by);

/// Copies rows of `from`, one after the other, to these rows of `into`; both [..., rows, columns].
void scatter_rows(const TensorView& from, const MutableTensorView& into, std::span<const PositionRange> rows);
/// Copies these rows of `from` to rows of `into`, one after the other.
void collect_rows(const TensorView& from, std::span<const PositionRange> rows, const MutableTensorView& into);

}  // namespace heed::distributed
