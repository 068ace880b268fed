// heed-mpi: the commands of `heed` over the ranks of mpirun.
#include <string>
#include <vector>

#include "command_line.hpp"
#include "failure.hpp"
#include "mpi/commands.hpp"
#include "mpi/session.hpp"
#include "terminal.hpp"

namespace heed::cli {
namespace {

// A command without support for ranks: it works on one rank, and with --help.
AddCommand alone(const Session& session, const std::string& name, AddCommand add) {
  return [&session, name, add](CLI::App& heed) {
    Command command = add(heed);
    if (session.comm().size() > 1)
      command.run = [&session, name] {
        throw UsageError("heed " + name + " works in one process, and mpirun started " +
                         std::to_string(session.comm().size()) + " ranks; one is expected");
      };
    return command;
  };
}

std::vector<AddCommand> commands(const Session& session) {
  const auto over = [&](Command (*add)(const Session&, CLI::App&)) -> AddCommand {
    return [&session, add](CLI::App& heed) { return add(session, heed); };
  };
  return {over(add_attend_over),
          alone(session, "bench", add_bench),
          alone(session, "explain", add_explain),
          over(add_look_over),
          alone(session, "who", add_who),
          alone(session, "why", add_why),
          alone(session, "circuit", add_circuit),
          alone(session, "atlas", add_atlas),
          over(add_train_over),
          alone(session, "generate", add_generate),
          alone(session, "plan", add_plan),
          alone(session, "info", add_info)};
}

}  // namespace
}  // namespace heed::cli

int main(int argc, char** argv) {
  using namespace heed::cli;
  hold_standard_streams();
  tell_bus_errors();
  Session session(argc, argv);
  return session.end(failure_of([&] { run_command_line(argc, argv, commands(session)); }));
}
