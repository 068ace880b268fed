// heed-mpi: the commands of `heed` over the ranks of mpirun.
#include <map>
#include <string>
#include <vector>

#include "command_line.hpp"
#include "failure.hpp"
#include "io/held_temporary.hpp"
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
        refuse_usage("heed ", name, " works in one process, and mpirun started ", session.comm().size(),
                     " ranks; one is expected");
      };
    return command;
  };
}

std::vector<AddCommand> commands(const Session& session) {
  const std::map<std::string, Command (*)(const Session&, CLI::App&)> over_ranks = {
      {"attend", add_attend_over}, {"look", add_look_over}, {"train", add_train_over}};
  std::vector<AddCommand> all;
  for (const auto& [name, add] : kCommands) {
    if (const auto over = over_ranks.find(name); over == over_ranks.end())
      all.push_back(alone(session, name, add));
    else
      all.emplace_back([&session, work = over->second](CLI::App& heed) { return work(session, heed); });
  }
  return all;
}

}  // namespace
}  // namespace heed::cli

int main(int argc, char** argv) {
  using namespace heed::cli;
  hold_standard_streams();
  tell_bus_errors();
  Session session(argc, argv);
  heed::io::detail::remove_temporaries_at_signals();
  return session.end(failure_of([&] { run_command_line(argc, argv, commands(session)); }));
}
