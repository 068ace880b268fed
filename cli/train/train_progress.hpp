// Progress of a training run.
#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <string>

#include "progress.hpp"

namespace heed::cli {

/// One line that is updated on a terminal; elsewhere one line per tenth of the steps.
class TrainProgress {
 public:
  /// `first` steps are already done. width 0: no terminal.
  TrainProgress(std::ostream& out, int width, std::int64_t first, std::int64_t steps,
                std::int64_t tokens_a_step);

  void show(std::int64_t step, double loss);
  /// Erases the line from the terminal.
  void clear() { bar_.clear(); }

  [[nodiscard]] double seconds() const;
  [[nodiscard]] double tokens_per_second(std::int64_t step) const;

 private:
  using Clock = std::chrono::steady_clock;
  std::ostream& out_;
  int width_;
  std::int64_t first_, steps_, tokens_a_step_;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point shown_at_ = begin_ - std::chrono::hours(1);
  ProgressBar bar_;
};

/// "41 s", "12 min 5 s", "3 h 20 min".
[[nodiscard]] std::string duration_text(double seconds);
/// ", loss 2.345, 51200 tokens/s, 17 s left".
[[nodiscard]] std::string train_text(double loss, double tokens_per_second, double seconds_left);

}  // namespace heed::cli
