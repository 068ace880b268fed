// How far a training is, for a person who waits.
#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <string>

namespace heed::cli {

/// One line that changes on a terminal; elsewhere a line each tenth of the way.
class TrainProgress {
 public:
  /// `first` steps are done already. width 0: no terminal.
  TrainProgress(std::ostream& out, int width, std::int64_t first, std::int64_t steps,
                std::int64_t tokens_a_step);
  ~TrainProgress();
  TrainProgress(const TrainProgress&) = delete;
  TrainProgress& operator=(const TrainProgress&) = delete;

  void show(std::int64_t step, double loss);
  /// Takes the line off the terminal.
  void clear();

  [[nodiscard]] double seconds() const;
  [[nodiscard]] double tokens_per_second(std::int64_t step) const;

 private:
  using Clock = std::chrono::steady_clock;
  std::ostream& out_;
  int width_;
  std::int64_t first_, steps_, tokens_a_step_;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point shown_at_ = begin_ - std::chrono::hours(1);
  std::size_t shown_ = 0;
};

/// "41 s", "12 min 5 s", "3 h 20 min".
[[nodiscard]] std::string duration_text(double seconds);
/// "step 120 of 1000 [##   ] 12 %, loss 2.345, 51200 tokens/s, 17 s left": at most `width` columns, the bar
/// as long as there is room for.
[[nodiscard]] std::string train_line(std::int64_t step, std::int64_t steps, double loss,
                                     double tokens_per_second, double seconds_left, int width);

}  // namespace heed::cli
