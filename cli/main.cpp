// The command `heed`. Runs the command line, or hands it to heed-mpi if mpirun started several ranks.
#include <optional>
#include <vector>

#include "command_line.hpp"
#include "failure.hpp"
#include "io/held_temporary.hpp"
#include "rank_options.hpp"
#include "terminal.hpp"

int main(int argc, char** argv) {
  using namespace heed::cli;
  const std::optional<StartedRank> started = started_by_mpirun();
  const std::optional<Failure> failure = failure_of([&] {
    hold_standard_streams();
    tell_bus_errors();
    heed::io::detail::remove_temporaries_at_signals();
    if (!started || started->rank == 0) tell_renamed_options(argc, argv);
    if (started && started->ranks > 1) become_heed_mpi(argv, *started);
    std::vector<AddCommand> commands;
    for (const auto& [name, add] : kCommands) commands.emplace_back(add);
    run_command_line(argc, argv, commands);
  });
  if (!failure) return 0;
  // All ranks fail here in the same way.
  if (!started || started->rank == 0) print_failure(*failure);
  return failure->exit_code;
}
