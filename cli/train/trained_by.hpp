// Who makes the steps of `heed train`: this process, or the ranks of mpirun (cli/mpi).
#pragma once

#include <functional>
#include <memory>

#include "command.hpp"
#include "heed/train_ranks.hpp"

namespace heed::cli {

struct TrainedBy {
  int ranks = 1;
  bool is_first = true;  ///< of them: it shows progress
  int threads = 0;       ///< of each, where nobody says how many; 0: what the machine has
  /// For TrainOptions::ranks. Empty: a process alone.
  std::function<std::unique_ptr<TrainRanks>(bool over_sequence)> together{};
};

/// `heed train` of these.
[[nodiscard]] Command add_train_with(CLI::App& heed, const TrainedBy& by);

}  // namespace heed::cli
