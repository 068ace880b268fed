// Training over the ranks of an MPI communicator (libheed_mpi; docs/training.md). Every rank holds the whole
// state and makes the same steps; the work of a step is shared out. Rank 0 alone writes, as heed/train.hpp
// says; the others read the folder where a training goes on.
//
// What is wrong on one rank throws on all: the rank's own Error there, "rank 2: …" elsewhere. A rank that
// fails within a sequence's layers (it runs out of memory) throws alone, and the others wait for it: end them
// by MPI_Abort.
#pragma once

#include <mpi.h>

#include <memory>
#include <string>
#include <string_view>

#include "heed/export.hpp"
#include "heed/train.hpp"

namespace heed::distributed {

/// What of a batch is cut over the ranks. The result has the same bits on all ranks, and on every run on as
/// many.
enum class Over {
  /// Its sequences. The sums over 1, 2, 4 or 8 ranks, or of at most 8 sequences, have the bits of one
  /// process;
  /// others are rounded in another order.
  batch,
  /// The positions of each of them, zig-zag, with attention over all ranks (heed/distributed.hpp). Sums over
  /// positions are rounded in another order than in one process.
  sequence,
};
/// "batch", "sequence".
[[nodiscard]] HEED_API std::string_view name_of(Over over) noexcept;

/// The ranks of `comm`, for TrainOptions::ranks. Given back before MPI_Finalize.
[[nodiscard]] HEED_API std::unique_ptr<TrainRanks> train_ranks(MPI_Comm comm, Over over);

/// heed::train() on all ranks, with the same arguments; of the options, stop and progress are each rank's
/// own, and where one rank is told to stop all do. Throws as it, and Error (invalid_argument) where ranks
/// disagree.
HEED_API TrainState train(MPI_Comm comm, const std::string& folder, const TrainSettings& settings,
                          const TrainData& data, const TrainOptions& options = {}, Over over = Over::batch);
/// heed::resume_training() likewise: bit for bit as if it had never stopped, on as many ranks as before.
HEED_API TrainState resume_training(MPI_Comm comm, const std::string& folder, const TrainData& data,
                                    const TrainOptions& options = {}, Over over = Over::batch);

}  // namespace heed::distributed
