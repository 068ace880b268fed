// The choice of `automatic`: the fastest scheme by the cost model (heed/distributed/plan.hpp).
#pragma once

#include "distributed/mpi/call.hpp"
#include "heed/distributed/attention.hpp"

namespace heed::distributed {

/// Throws Error (invalid_argument) on all ranks if they disagree about the choice, or if its machines are
/// invalid.
void agree_on_choice(const Communicator& comm, const Choice& choice);

/// Returns the same scheme on all ranks, one of `possible`. Returns `otherwise` if the model cannot decide:
/// lengths of 0, or beyond its limits.
[[nodiscard]] Scheme choose_scheme(const Communicator& comm, const Call& call, const Choice& choice,
                                   bool gradients, std::initializer_list<Scheme> possible, Scheme otherwise);

}  // namespace heed::distributed
