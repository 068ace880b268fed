// The one exception type of the library.
#pragma once

#include <stdexcept>
#include <string>

#include "heed/export.hpp"

namespace heed {

/// The kind of failure; the values equal heed_status (heed.h).
enum class ErrorCode : int {
  invalid_argument = 1,  ///< the call is wrong: a shape, a dtype, an option
  io = 2,                ///< a file is missing, unreadable or broken
  out_of_memory = 3,     ///< an allocation failed, or the requested size overflows
  internal = 4,          ///< a bug in heed
};

/// Thrown by every function of heed that fails. what() is one sentence that names the argument or file, its
/// value, and what was expected.
class HEED_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace heed
