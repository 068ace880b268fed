// Rows that f32 cannot hold, which a scheme without all keys left out.
#pragma once

#include <vector>

#include "distributed/mpi/call.hpp"
#include "distributed/mpi/schemes.hpp"
#include "heed/streamed.hpp"

namespace heed::distributed {

/// Computes rows of this rank (PartRow: batch, query head, row) once more, with all keys of their units. All
/// ranks call it together; it does nothing where none has such a row.
[[nodiscard]] Work compute_left_out(const Communicator& comm, const Call& call,
                                    const AttentionOutputs& outputs, std::span<const PartRow> rows);

}  // namespace heed::distributed
