// Temporary files that a signal removes. Only a program that calls remove_temporaries_at_signals() has a
// handler.
#pragma once

#include <string>

#include "heed/export.hpp"

namespace heed::io::detail {

/// Lists a file while this object lives, so that remove_temporaries() removes it. The list is fixed; a file
/// beyond its end, or with a name of more than 31 bytes, is not listed.
class HEED_API HeldTemporary {
 public:
  /// `folder` is an open descriptor that outlives this object.
  HeldTemporary(int folder, const std::string& name) noexcept;
  ~HeldTemporary();
  HeldTemporary(const HeldTemporary&) = delete;
  HeldTemporary& operator=(const HeldTemporary&) = delete;

 private:
  int slot_ = -1;
};

/// The signals of remove_temporaries_at_signals() wait while an object of this class lives.
class HEED_API SignalsWait {
 public:
  SignalsWait() noexcept;
  ~SignalsWait();
  SignalsWait(const SignalsWait&) = delete;
  SignalsWait& operator=(const SignalsWait&) = delete;
};

/// Removes all listed files. A signal handler may call it.
HEED_API void remove_temporaries() noexcept;

/// A signal handler: removes all listed files and ends the process by this signal.
HEED_API void end_by_signal(int signal) noexcept;

/// Handles the signals that end a program, except those that it ignores.
HEED_API void remove_temporaries_at_signals() noexcept;

}  // namespace heed::io::detail
