#include "ranks.hpp"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "command.hpp"
#include "options.hpp"

namespace heed::cli {
namespace {

std::optional<std::int64_t> variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : whole_number(value);
}

}  // namespace

std::optional<StartedRank> started_by_mpirun() {
  constexpr std::array<std::pair<const char*, const char*>, 2> kNames = {
      {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"}, {"PMI_SIZE", "PMI_RANK"}}};
  for (const auto& [size, rank] : kNames) {
    const std::optional<std::int64_t> ranks = variable(size), own = variable(rank);
    if (ranks && own) return StartedRank{static_cast<int>(*own), static_cast<int>(*ranks)};
  }
  return std::nullopt;
}

void become_heed_mpi(char** argv, const StartedRank& started) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string program = (self.parent_path() / "heed-mpi").string();
  if (!error) execv(program.c_str(), argv);
  const std::string reason =
      errno == ENOENT || error ? "this heed was built without MPI: heed-mpi is not beside it (install "
                                 "libopenmpi-dev and build again)"
                               : "'" + program + "' cannot be run: " + std::generic_category().message(errno);
  throw UsageError("mpirun started " + std::to_string(started.ranks) + " ranks, but " + reason);
}

}  // namespace heed::cli
