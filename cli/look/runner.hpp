// Where `heed look` runs: in this process, or over the ranks of mpirun (cli/mpi).
#pragma once

#include <functional>

#include "command.hpp"
#include "look/arguments.hpp"

namespace heed::cli {

/// Runs `look`, which answers the question of the arguments, here or nowhere, and may tell it how to compute.
using LookRunner =
    std::function<void(const CLI::App& app, LookArguments& arguments, const std::function<void()>& look)>;

/// `heed look`, run so.
[[nodiscard]] Command add_look_with(CLI::App& heed, LookRunner run);

}  // namespace heed::cli
