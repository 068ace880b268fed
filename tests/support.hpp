// Helpers shared by several tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>

#include "heed/error.hpp"

namespace heed::test {

/// The message of the heed::Error that `call` throws, or "no error".
inline std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// Returns the number in an environment variable, and 1 if it is not set or 0.
inline std::uint64_t number_in_environment(const char* name) {
  const char* text = std::getenv(name);
  return std::max<std::uint64_t>(1, text == nullptr ? 1 : std::strtoull(text, nullptr, 10));
}
/// Returns how many of `calls` random calls to make, at least one: one in HEED_TEST_SHARE, which the user
/// sets, times HEED_TEST_SHARE_OF_PROGRAM, which CTest sets for slow programs.
inline std::uint64_t share_of(std::uint64_t calls) {
  const std::uint64_t one_in =
      number_in_environment("HEED_TEST_SHARE") * number_in_environment("HEED_TEST_SHARE_OF_PROGRAM");
  return (calls + one_in - 1) / one_in;
}
/// Returns whether all random calls are made; false if HEED_TEST_SHARE skips some.
inline bool makes_all_calls() { return share_of(100) == 100; }

}  // namespace heed::test
