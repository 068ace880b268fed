// What the subcommands of `heed` have in common: how they join it, and how they fail.
#pragma once

#include <functional>
#include <stdexcept>

namespace CLI {
class App;
}

namespace heed::cli {

/// The command line is wrong: exit code 2. Of what else fails, heed::Error (invalid_argument) exits with 2
/// too, and the rest with 1.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The user asked to stop (Ctrl-C), and what was done is safe: exit code 130, as a shell has it for SIGINT.
class Interrupted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A subcommand: its options, and what it does once they are parsed.
struct Command {
  CLI::App* app;
  std::function<void()> run;
};

[[nodiscard]] Command add_attend(CLI::App& heed);
[[nodiscard]] Command add_bench(CLI::App& heed);
[[nodiscard]] Command add_explain(CLI::App& heed);
[[nodiscard]] Command add_look(CLI::App& heed);
[[nodiscard]] Command add_who(CLI::App& heed);
[[nodiscard]] Command add_atlas(CLI::App& heed);
[[nodiscard]] Command add_plan(CLI::App& heed);
[[nodiscard]] Command add_info(CLI::App& heed);
[[nodiscard]] Command add_train(CLI::App& heed);
[[nodiscard]] Command add_generate(CLI::App& heed);

}  // namespace heed::cli
