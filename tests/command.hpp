// Runs the command `heed` as a person or a script would, and captures its output.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "io_support.hpp"  // IWYU pragma: export: TemporaryFolder

namespace heed::test {

struct CommandInput {
  std::string program;                             ///< run instead of heed, found through PATH: "mpirun"
  std::string text;                                ///< its standard input
  std::map<std::string, std::string> environment;  ///< in addition to PATH, LANG and TERM=dumb
  std::string directory;                           ///< its working directory; by default that of the test
  int terminal_columns =
      0;  ///< more than 0: standard output is a terminal this wide (lines then end in \\r\\n)
  bool errors_on_terminal = false;       ///< standard error is the same terminal, so it is in `output` too
  std::string output_path;               ///< a file for standard output instead of `output`: "/dev/full"
  bool close_output = false;             ///< starts without a standard output
  std::function<void(pid_t)> meanwhile;  ///< runs while the command, this process, runs
};

struct CommandResult {
  int exit_code = -1;  ///< 128 + the signal's number if a signal ended it
  std::string output;
  std::string errors;
};

/// Runs the binary of this build, or another program. A run of more than a minute is killed.
[[nodiscard]] CommandResult run_heed(const std::vector<std::string>& arguments,
                                     const CommandInput& input = {});

/// Whether CommandInput::terminal_columns can have a terminal. Some systems have no /dev/ptmx.
[[nodiscard]] bool has_terminals();

}  // namespace heed::test
