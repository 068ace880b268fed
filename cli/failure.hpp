// Failures as a message of one line and an exit code.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace heed::cli {

struct Failure {
  int exit_code = 1;
  std::string message;
};

/// Runs `work` and turns an exception into a Failure.
[[nodiscard]] std::optional<Failure> failure_of(const std::function<void()>& work);

/// From now on a bus error (SIGBUS) ends the process with one sentence and exit code 1, and removes temporary
/// files. The operating system sends it if the mapped file of a model was cut by another program.
void tell_bus_errors();

/// Prints "heed: …" on standard error.
void print_failure(const Failure& failure);

}  // namespace heed::cli
