// Shared by tests of the command over ranks: runs mpirun heed … in a folder of files.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "command.hpp"

namespace heed::test {

using Words = std::vector<std::string>;

/// Lets mpirun start as root, in a container, with more ranks than processors.
inline CommandInput mpirun_input(const std::string& directory) {
  CommandInput input;
  input.program = HEED_MPIRUN;
  input.directory = directory;
  input.environment = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                       {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                       {"OMPI_MCA_hwloc_base_binding_policy", "none"},
                       {"OMPI_MCA_mpi_yield_when_idle", "1"}};
  return input;
}

/// Runs mpirun -n RANKS heed …
inline CommandResult run_over_ranks(int ranks, const Words& words, const CommandInput& input) {
  Words all = {"-n", std::to_string(ranks), "--oversubscribe", HEED_COMMAND};
  all.insert(all.end(), words.begin(), words.end());
  return run_heed(all, input);
}

/// The process ids of the ranks that work in a folder, ascending; empty before they start.
inline std::vector<pid_t> ranks_in(const std::string& folder) {
  std::vector<pid_t> found;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", none)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (std::filesystem::read_symlink(entry.path() / "exe", none).filename() != "heed-mpi" || none) continue;
    if (std::filesystem::read_symlink(entry.path() / "cwd", none) == folder)
      found.push_back(static_cast<pid_t>(std::stol(name)));
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// Only heed's own messages; mpirun's are left out.
inline std::string said(const CommandResult& result) {
  std::string own;
  for (std::size_t at = 0; at < result.errors.size();) {
    const std::size_t end = std::min(result.errors.find('\n', at), result.errors.size() - 1) + 1;
    const std::string line = result.errors.substr(at, end - at);
    if (line.starts_with("heed: ")) own += line;
    at = end;
  }
  return own;
}

/// Runs the command in a folder of the test's own, in one process or over ranks.
class RunsOverRanks : public testing::Test {
 protected:
  [[nodiscard]] CommandInput input() const { return mpirun_input(folder.path()); }
  [[nodiscard]] CommandResult run(int ranks, const Words& words) const {
    return run_over_ranks(ranks, words, input());
  }
  [[nodiscard]] CommandResult alone(const Words& words) const {
    CommandInput here;
    here.directory = folder.path();
    return run_heed(words, here);
  }
  /// Expects one sentence, printed once, and no files written.
  void expect_refusal(int ranks, const Words& words, int exit_code, const std::string& sentence) const {
    const Words before = folder.names();
    const CommandResult result = run(ranks, words);
    EXPECT_EQ(said(result), "heed: " + sentence + "\n");
    EXPECT_EQ(result.exit_code, exit_code);
    EXPECT_EQ(result.output, "");
    EXPECT_EQ(folder.names(), before);
  }

  TemporaryFolder folder;
};

}  // namespace heed::test
