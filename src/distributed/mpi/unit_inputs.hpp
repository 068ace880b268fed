// What travels to the rank of a unit, and what its tensors are there.
#pragma once

#include <cstddef>
#include <vector>

#include "distributed/mpi/backward_call.hpp"
#include "distributed/mpi/call.hpp"
#include "distributed/mpi/travel.hpp"
#include "heed/backward.hpp"

namespace heed::distributed {

/// Mask and bias, where they have rows; they follow the other inputs of a unit.
[[nodiscard]] std::vector<Shard> travelling_rules(const Call& call);
/// The unit's options, with those of its tensors from number `first` on.
[[nodiscard]] AttentionOptions unit_options(const Call& call, const Unit& unit, const UnitTensors& tensors,
                                            std::size_t first);

/// All that the backward pass reads.
[[nodiscard]] std::vector<Shard> backward_shards(const BackwardCall& call);

struct UnitBackward {
  AttentionBackwardInputs inputs;  ///< [1, each, L, columns], of the unit's tensors
  AttentionOptions options;
};
/// A unit whose tensors are those of backward_shards().
[[nodiscard]] UnitBackward unit_backward(const BackwardCall& call, const Unit& unit,
                                         const UnitTensors& tensors);

}  // namespace heed::distributed
