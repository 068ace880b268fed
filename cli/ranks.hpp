// Detection of mpirun, and the switch to heed-mpi, which runs over ranks.
#pragma once

#include <optional>

namespace heed::cli {

struct StartedRank {
  int rank = 0;
  int ranks = 1;
};

/// Reads the variables that Open MPI and the PMI of other MPIs set. Returns nothing if there are none.
[[nodiscard]] std::optional<StartedRank> started_by_mpirun();

/// Replaces this process by heed-mpi, which is next to this program. Throws UsageError if it is missing or
/// cannot be run.
[[noreturn]] void become_heed_mpi(char** argv, const StartedRank& started);

}  // namespace heed::cli
