// Training over the ranks of an MPI communicator (libheed_mpi; docs/training.md). Every rank holds the whole
// state and makes the same steps; the work of a step is split. Only rank 0 writes files, as described in
// heed/nn/train.hpp; the other ranks read the folder when a training resumes.
//
// An error on one rank throws on all: the rank's own Error there, "rank 2: …" elsewhere. A rank that fails
// within the layers of a sequence, by running out of memory, throws alone while the others wait for it; end
// them with MPI_Abort.
#pragma once

#include <mpi.h>

#include <memory>
#include <string>
#include <string_view>

#include "heed/export.hpp"
#include "heed/nn/train.hpp"

namespace heed::distributed {

/// How a batch is split across the ranks. The result has the same bits on all ranks, and on every run with as
/// many ranks.
enum class Over {
  /// By sequences. Sums over 1, 2, 4 or 8 ranks, or of at most 8 sequences, have the bits of a single
  /// process; others are rounded in another order.
  batch,
  /// By positions of each sequence, zig-zag, with attention over all ranks (heed/distributed/attention.hpp).
  /// Sums over
  /// positions are rounded in another order than in one process.
  sequence,
};
/// "batch", "sequence".
[[nodiscard]] HEED_API std::string_view name_of(Over over) noexcept;

/// The ranks of `comm`, for TrainOptions::ranks. Destroy it before MPI_Finalize.
[[nodiscard]] HEED_API std::unique_ptr<TrainRanks> train_ranks(MPI_Comm comm, Over over);

/// Runs heed::train() on all ranks, with the same arguments except that stop and progress are each rank's
/// own. If one rank is told to stop, all stop. Throws as heed::train() does, and Error (invalid_argument) if
/// ranks disagree.
HEED_API TrainState train(MPI_Comm comm, const std::string& folder, const TrainSettings& settings,
                          const TrainData& data, const TrainOptions& options = {}, Over over = Over::batch);
/// Runs heed::resume_training() likewise: bit for bit as without a stop, if the number of ranks is the same.
HEED_API TrainState resume_training(MPI_Comm comm, const std::string& folder, const TrainData& data,
                                    const TrainOptions& options = {}, Over over = Over::batch);

}  // namespace heed::distributed
