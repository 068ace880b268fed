#include "failure.hpp"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <exception>
#include <iostream>
#include <new>
#include <string_view>

#include "command.hpp"
#include "heed/error.hpp"
#include "io/held_temporary.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr int kFailure = 1;
constexpr int kBadUse = 2;
constexpr int kInterrupted = 130;

// Calls only what a signal handler may call. Several threads may read the file; the first one speaks.
extern "C" void end_at_bus_error(int) {
  static std::atomic_flag spoken;
  while (spoken.test_and_set()) pause();
  io::detail::remove_temporaries();
  constexpr std::string_view kMessage =
      "heed: a file was cut or became unreadable while its mapped bytes were in use\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kMessage.data(), kMessage.size());
  _exit(kFailure);
}

}  // namespace

void tell_bus_errors() { std::signal(SIGBUS, end_at_bus_error); }

std::optional<Failure> failure_of(const std::function<void()>& work) {
  try {
    work();
    return std::nullopt;
  } catch (const UsageError& error) {
    return Failure{kBadUse, error.what()};
  } catch (const Interrupted& stop) {
    return Failure{kInterrupted, stop.what()};
  } catch (const heed::Error& error) {
    return Failure{error.code() == ErrorCode::invalid_argument ? kBadUse : kFailure, error.what()};
  } catch (const std::bad_alloc&) {
    return Failure{kFailure, "not enough memory"};
  } catch (const std::exception& error) {
    return Failure{kFailure, error.what()};
  }
}

// Commands below a message, indented by two spaces, keep lines of their own.
void print_failure(const Failure& failure) {
  std::string_view rest = failure.message;
  std::cerr << "heed: ";
  for (std::size_t at = 0; (at = rest.find("\n  ")) != rest.npos; rest.remove_prefix(at + 1))
    std::cerr << printable(rest.substr(0, at)) << '\n';
  std::cerr << printable(rest) << std::endl;
}

}  // namespace heed::cli
