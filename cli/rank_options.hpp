// Options for sharing a call among the ranks of mpirun.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "command.hpp"
#include "heed/attention/sharding.hpp"
#include "heed/distributed/scheme.hpp"

namespace heed::cli {

/// The heading of these options in the help.
inline constexpr const char* kRankGroup = "Over several ranks (mpirun -n 4 heed …)";

struct RankOptions {
  enum class Kind { by_mask, contiguous, zigzag, striped };  ///< by_mask: zigzag if causal, else contiguous
  Kind sharding = Kind::by_mask;
  std::int64_t stripe = 192;
  distributed::Scheme scheme = distributed::Scheme::automatic;
  bool deterministic = false;
};

void add_rank_options(CLI::App& app, RankOptions& options);

/// Throws UsageError if one of these options is given and mpirun did not start this process.
void refuse_rank_options_alone(const CLI::App& app, std::initializer_list<const char*> names = {
                                                        "--sharding", "--scheme", "--deterministic"});

[[nodiscard]] Sharding sharding_of(const RankOptions& options, bool causal, std::int64_t length, int ranks);
/// "zigzag", "striped:192".
[[nodiscard]] std::string sharding_text(const RankOptions& options, bool causal);

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
