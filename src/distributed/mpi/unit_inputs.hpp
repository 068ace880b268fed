// The data that travels to the rank of a unit, and the unit's tensors there.
#pragma once

#include <cstddef>
#include <vector>

#include "distributed/mpi/backward_call.hpp"
#include "distributed/mpi/call.hpp"
#include "distributed/mpi/travel.hpp"
#include "heed/attention/backward.hpp"

namespace heed::distributed {

/// Mask and bias, if they have rows; they follow the other inputs of a unit.
[[nodiscard]] std::vector<Shard> travelling_rules(const Call& call);
/// The unit's options, with mask and bias from its tensors, number `first` on.
[[nodiscard]] AttentionOptions unit_options(const Call& call, const Unit& unit, const UnitTensors& tensors,
                                            std::size_t first);

/// All inputs of the backward pass.
[[nodiscard]] std::vector<Shard> backward_shards(const BackwardCall& call);

struct UnitBackward {
  AttentionBackwardInputs inputs;  ///< [1, each, L, columns], from the unit's tensors
  AttentionOptions options;
};
/// The inputs of a unit whose tensors come from backward_shards().
[[nodiscard]] UnitBackward unit_backward(const BackwardCall& call, const Unit& unit,
                                         const UnitTensors& tensors);

}  // namespace heed::distributed
