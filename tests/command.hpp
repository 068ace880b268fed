// Runs the command `heed` as a person or a script would, and keeps what it prints.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "io_support.hpp"  // IWYU pragma: export: TemporaryFolder

namespace heed::test {

struct CommandInput {
  std::string program;                             ///< another than heed, as PATH finds it: "mpirun"
  std::string text;                                ///< on its standard input
  std::map<std::string, std::string> environment;  ///< set on top of a plain one (PATH, LANG and TERM=dumb)
  std::string directory;                           ///< where it runs; here by default
  int terminal_columns =
      0;  ///< more than 0: standard output is a terminal this wide (lines then end in \\r\\n)
  bool errors_on_terminal = false;  ///< standard error is that terminal too, and so in `output`
  std::string output_path;          ///< where standard output goes instead of `output`: "/dev/full"
  bool close_output = false;        ///< it starts without a standard output
  std::function<void()> meanwhile;  ///< done while it runs
};

struct CommandResult {
  int exit_code = -1;  ///< 128 + the signal's number where one ended it
  std::string output;
  std::string errors;
};

/// Runs the binary of this build, or another program. A run that takes over a minute is killed.
[[nodiscard]] CommandResult run_heed(const std::vector<std::string>& arguments,
                                     const CommandInput& input = {});

/// Whether a terminal can be had for CommandInput::terminal_columns; not everywhere is there a /dev/ptmx.
[[nodiscard]] bool has_terminals();

}  // namespace heed::test
