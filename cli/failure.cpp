#include "failure.hpp"

#include <exception>
#include <iostream>
#include <new>
#include <string_view>

#include "command.hpp"
#include "heed/error.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr int kFailure = 1;
constexpr int kBadUse = 2;
constexpr int kInterrupted = 130;

}  // namespace

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
