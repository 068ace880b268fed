// Whether mpirun started this process, and the command heed-mpi, which works over its ranks.
#pragma once

#include <optional>

namespace heed::cli {

struct StartedRank {
  int rank = 0;
  int ranks = 1;
};

/// By the variables that Open MPI and the PMI of other MPIs set; nothing where there are none.
[[nodiscard]] std::optional<StartedRank> started_by_mpirun();

/// Runs heed-mpi, which lies beside this program, in its place. Returns only where there is none, or it
/// cannot be run: throws UsageError, that says so.
[[noreturn]] void become_heed_mpi(char** argv, const StartedRank& started);

}  // namespace heed::cli
