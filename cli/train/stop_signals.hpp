// Ctrl-C as a request to stop at the next safe point.
#pragma once

namespace heed::cli {

/// During its lifetime, SIGINT and SIGTERM are only recorded. A second signal ends the process as usual.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  [[nodiscard]] static bool asked() noexcept;
};

}  // namespace heed::cli
