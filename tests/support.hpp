// What several tests share.
#pragma once

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

}  // namespace heed::test
