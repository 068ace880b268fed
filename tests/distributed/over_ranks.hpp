// What tests of the command over ranks share: mpirun heed … in a folder of files.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "command.hpp"

namespace heed::test {

using Words = std::vector<std::string>;

/// As root, in a container, with more ranks than processors.
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

/// mpirun -n RANKS heed …
inline CommandResult run_over_ranks(int ranks, const Words& words, const CommandInput& input) {
  Words all = {"-n", std::to_string(ranks), "--oversubscribe", HEED_COMMAND};
  all.insert(all.end(), words.begin(), words.end());
  return run_heed(all, input);
}

/// What heed said, without what mpirun says besides.
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

}  // namespace heed::test
