// The command line of `heed`.
#pragma once

#include <functional>
#include <vector>

#include "command.hpp"

namespace heed::cli {

using AddCommand = std::function<Command(CLI::App& heed)>;

/// Parses it and runs the subcommand. Throws what that throws, and UsageError where the command line is
/// wrong.
void run_command_line(int argc, const char* const* argv, const std::vector<AddCommand>& subcommands);

}  // namespace heed::cli
