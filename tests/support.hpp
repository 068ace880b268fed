// Helpers shared by several tests.
#pragma once

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

/// Returns how many of `calls` random calls to make: one in HEED_TEST_SHARE if that variable is set, but at
/// least one.
inline std::uint64_t share_of(std::uint64_t calls) {
  const char* share = std::getenv("HEED_TEST_SHARE");
  const std::uint64_t one_in = share == nullptr ? 1 : std::strtoull(share, nullptr, 10);
  return one_in > 1 ? (calls + one_in - 1) / one_in : calls;
}
/// Returns whether all random calls are made; false if HEED_TEST_SHARE skips some.
inline bool makes_all_calls() { return share_of(100) == 100; }

}  // namespace heed::test
