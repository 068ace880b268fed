// Where `heed look` runs: in this process, or over the ranks of mpirun (cli/mpi).
#pragma once

#include <functional>

#include "command.hpp"
#include "look/arguments.hpp"

namespace heed::cli {

/// Runs `look`, which answers the question of the arguments, on this process or leaves it to another rank. It
/// may first set how the call is computed.
using LookRunner =
    std::function<void(const CLI::App& app, LookArguments& arguments, const std::function<void()>& look)>;

/// `heed look` with this runner.
[[nodiscard]] Command add_look_with(CLI::App& heed, LookRunner run);

}  // namespace heed::cli
