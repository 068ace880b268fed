// The command line of `heed`.
#pragma once

#include <array>
#include <functional>
#include <utility>
#include <vector>

#include "command.hpp"

namespace heed::cli {

using AddCommand = std::function<Command(CLI::App& heed)>;

/// The subcommands, in the order of the help.
inline constexpr std::array<std::pair<const char*, Command (*)(CLI::App& heed)>, 13> kCommands = {
    {{"attend", add_attend},
     {"bench", add_bench},
     {"explain", add_explain},
     {"look", add_look},
     {"who", add_who},
     {"why", add_why},
     {"circuit", add_circuit},
     {"heads", add_heads},
     {"atlas", add_atlas},
     {"train", add_train},
     {"generate", add_generate},
     {"plan", add_plan},
     {"info", add_info}}};

/// Parses the command line and runs the subcommand. Throws UsageError for a wrong command line, and whatever
/// the subcommand throws.
void run_command_line(int argc, const char* const* argv, const std::vector<AddCommand>& subcommands);

/// Prints a line for each option that is given by an old name.
void tell_renamed_options(int argc, const char* const* argv);

}  // namespace heed::cli
