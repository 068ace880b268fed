// Rows that f32 cannot hold, left out by a scheme in which no rank has all keys.
#pragma once

#include "distributed/mpi/call.hpp"
#include "distributed/mpi/schemes.hpp"
#include "heed/attention/streamed.hpp"

namespace heed::distributed {

/// Computes rows of this rank (PartRow: batch, query head, row) again, with all keys of their units. A
/// collective call; it does nothing if no rank has such a row.
[[nodiscard]] Work compute_left_out(const Communicator& comm, const Call& call,
                                    const AttentionOutputs& outputs, std::span<const PartRow> rows);

}  // namespace heed::distributed
