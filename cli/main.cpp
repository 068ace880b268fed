// The command `heed`. Runs the command line, or hands it to heed-mpi if mpirun started several ranks.
#include <optional>

#include "command_line.hpp"
#include "failure.hpp"
#include "rank_options.hpp"
#include "terminal.hpp"

int main(int argc, char** argv) {
  using namespace heed::cli;
  const std::optional<StartedRank> started = started_by_mpirun();
  const std::optional<Failure> failure = failure_of([&] {
    hold_standard_streams();
    tell_bus_errors();
    if (!started || started->rank == 0) tell_renamed_options(argc, argv);
    if (started && started->ranks > 1) become_heed_mpi(argv, *started);
    run_command_line(argc, argv,
                     {add_attend, add_bench, add_explain, add_look, add_who, add_why, add_circuit, add_heads,
                      add_atlas, add_train, add_generate, add_plan, add_info});
  });
  if (!failure) return 0;
  // All ranks fail here in the same way.
  if (!started || started->rank == 0) print_failure(*failure);
  return failure->exit_code;
}
