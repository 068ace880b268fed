// The schemes: each computes some results of a checked call, on all ranks at once.
#pragma once

#include "distributed/mpi/backward_call.hpp"
#include "distributed/mpi/call.hpp"
#include "distributed/mpi/communicator.hpp"
#include "heed/distributed/attention.hpp"

namespace heed::distributed {

struct Work {
  int threads = 1;
  std::int64_t recomputed_rows = 0;
  std::int64_t bytes_sent = 0;

  void add(const AttentionRun& one);
  void add(const Work& other);
};

/// Row results: every rank gathers the keys and values of one unit after the other.
[[nodiscard]] Work gather(const Communicator& comm, const Call& call, const AttentionOutputs& outputs);
/// Results of takes_one_pass() (results.hpp): blocks of keys and values travel in their order.
[[nodiscard]] Work ring(const Communicator& comm, const Call& call, const AttentionOutputs& outputs);
/// The same results, for few rows: queries travel, and the states of their rows return.
[[nodiscard]] Work decode(const Communicator& comm, const Call& call, const AttentionOutputs& outputs);
/// All results: a rank has all rows of its units. Computes everything that the call requests, because the
/// bits of a result depend on the other results of the computation. Writes only `outputs`.
[[nodiscard]] Work ulysses(const Communicator& comm, const Call& call, const AttentionOutputs& outputs);

/// Gradients: a rank has all rows and keys of its units. `deterministic` refuses sums over units.
[[nodiscard]] Work ulysses_backward(const Communicator& comm, const BackwardCall& call, bool deterministic);

/// Gradients by query, key and value: ranks share the keys of a unit. Returns false where this is impossible:
/// for f64, for kernels other than the fused one, for rows that f32 cannot hold. Nothing written counts then.
[[nodiscard]] bool gather_backward(const Communicator& comm, const BackwardCall& call, Work& work);

/// A summary over all ranks: the largest number of threads, and the rows that f32 cannot hold.
[[nodiscard]] Run run_of(const Communicator& comm, const Call& call, Scheme scheme, const Work& work);

}  // namespace heed::distributed
