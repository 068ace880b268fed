// Who trains in `heed train`: this process, or the ranks of mpirun (cli/mpi).
#pragma once

#include <functional>
#include <memory>

#include "command.hpp"
#include "heed/nn/train_ranks.hpp"

namespace heed::cli {

struct TrainedBy {
  int ranks = 1;
  bool is_first = true;  ///< whether this is the first rank, which shows progress
  int threads = 0;       ///< default threads per rank; 0: all of the machine's
  /// For TrainOptions::ranks. Empty for a single process.
  std::function<std::unique_ptr<TrainRanks>(bool over_sequence)> together{};
};

/// `heed train` on these ranks.
[[nodiscard]] Command add_train_with(CLI::App& heed, const TrainedBy& by);

}  // namespace heed::cli
