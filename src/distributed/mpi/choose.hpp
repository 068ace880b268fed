// Which scheme `automatic` takes: the fastest by the cost model (heed/distributed_plan.hpp).
#pragma once

#include "distributed/mpi/call.hpp"
#include "heed/distributed.hpp"

namespace heed::distributed {

/// Throws Error (invalid_argument) on all ranks where they disagree about the choice, or its machines are
/// none.
void agree_on_choice(const Communicator& comm, const Choice& choice);

/// The same on all ranks. `possible` names the schemes that the caller has, and what it takes where the model
/// says nothing: lengths of 0, or more than it reckons with.
[[nodiscard]] Scheme choose_scheme(const Communicator& comm, const Call& call, const Choice& choice,
                                   bool gradients, std::initializer_list<Scheme> possible, Scheme otherwise);

}  // namespace heed::distributed
