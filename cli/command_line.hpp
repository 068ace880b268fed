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

/// Prints a line for each option that is given by an old name.
void tell_renamed_options(int argc, const char* const* argv);

}  // namespace heed::cli
