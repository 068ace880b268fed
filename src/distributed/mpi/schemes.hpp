// The schemes: each computes some results of a checked call, on all ranks at once.
#pragma once

#include "distributed/mpi/backward_call.hpp"
#include "distributed/mpi/call.hpp"
#include "distributed/mpi/communicator.hpp"
#include "heed/distributed.hpp"

namespace heed::distributed {

/// What a rank did; `isa` and `kernel` are empty where it had nothing to compute.
struct Work {
  AttentionRun run;
  std::int64_t bytes_sent = 0;

  void add(const AttentionRun& one);
  void add(const Work& other);
};

/// Row results: keys and values of one unit after the other are gathered on every rank.
[[nodiscard]] Work gather(const Communicator& comm, const Call& call, const AttentionOutputs& outputs);
/// All results: a rank has all rows of its units. Computes what the call asks for, since the bits of a result
/// depend on which others are computed with it, and gives `outputs` of it.
[[nodiscard]] Work ulysses(const Communicator& comm, const Call& call, const AttentionOutputs& outputs);

/// Gradients: a rank has all rows and keys of its units.
[[nodiscard]] Work ulysses_backward(const Communicator& comm, const BackwardCall& call);

/// What all ranks did together: the most threads, all rows that f32 could not hold.
void add_ranks(const Communicator& comm, AttentionRun& run);

}  // namespace heed::distributed
