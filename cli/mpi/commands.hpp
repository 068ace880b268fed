// Subcommands that run over ranks.
#pragma once

#include "command.hpp"
#include "mpi/session.hpp"

namespace heed::cli {

[[nodiscard]] Command add_attend_over(const Session& session, CLI::App& heed);
[[nodiscard]] Command add_look_over(const Session& session, CLI::App& heed);
[[nodiscard]] Command add_train_over(const Session& session, CLI::App& heed);

}  // namespace heed::cli
