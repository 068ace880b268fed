// Subcommands of `heed`: registration and failure.
#pragma once

#include <functional>
#include <stdexcept>

#include "core/message.hpp"

namespace CLI {
class App;
}

namespace heed::cli {

/// A wrong command line: exit code 2. heed::Error (invalid_argument) also exits with 2, other errors with 1.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws a UsageError with the parts as its sentence.
template <class... Parts>
[[noreturn]] void refuse_usage(const Parts&... parts) {
  throw UsageError(heed::detail::said(parts...));
}

/// The user stopped the command (Ctrl-C) and all work done is saved. Exit code 130, as shells use for SIGINT.
class Interrupted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A subcommand: its options, and the function to run after parsing.
struct Command {
  CLI::App* app;
  std::function<void()> run;
};

[[nodiscard]] Command add_attend(CLI::App& heed);
[[nodiscard]] Command add_bench(CLI::App& heed);
[[nodiscard]] Command add_explain(CLI::App& heed);
[[nodiscard]] Command add_look(CLI::App& heed);
[[nodiscard]] Command add_circuit(CLI::App& heed);
[[nodiscard]] Command add_heads(CLI::App& heed);
[[nodiscard]] Command add_who(CLI::App& heed);
[[nodiscard]] Command add_why(CLI::App& heed);
[[nodiscard]] Command add_atlas(CLI::App& heed);
[[nodiscard]] Command add_plan(CLI::App& heed);
[[nodiscard]] Command add_info(CLI::App& heed);
[[nodiscard]] Command add_train(CLI::App& heed);
[[nodiscard]] Command add_generate(CLI::App& heed);

}  // namespace heed::cli
