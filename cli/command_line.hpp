// The command line of `heed`.
#pragma once

#include <functional>
#include <vector>

#include "command.hpp"

namespace heed::cli {

using AddCommand = std::function<Command(CLI::App& heed)>;

/// Parses the command line and runs the subcommand. Throws UsageError for a wrong command line, and whatever
/// the subcommand throws.
void run_command_line(int argc, const char* const* argv, const std::vector<AddCommand>& subcommands);

}  // namespace heed::cli
