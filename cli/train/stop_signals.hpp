// Ctrl-C as a wish to stop that is granted at the next good place.
#pragma once

namespace heed::cli {

/// While it lives, SIGINT and SIGTERM are only noted; a second one ends the process as ever.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  [[nodiscard]] static bool asked() noexcept;
};

}  // namespace heed::cli
