// A progress bar on standard error for long work.
#pragma once

#include <chrono>
#include <iosfwd>
#include <string>
#include <string_view>

namespace heed::cli {

/// Nothing is shown where standard error is no terminal, nor before `patience` is over: short work needs no
/// bar. What was drawn is wiped away in the end.
class ProgressBar {
 public:
  using Milliseconds = std::chrono::milliseconds;
  static constexpr Milliseconds kPatience{500};

  /// On standard error.
  explicit ProgressBar(Milliseconds patience = kPatience);
  /// `width` columns; 0: nothing is shown.
  ProgressBar(std::ostream& out, int width, Milliseconds patience = kPatience)
      : out_(out), width_(width), patience_(patience) {}
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void show(std::string_view what, double share, std::string_view more = {});
  void clear();  ///< before something else is printed

 private:
  std::ostream& out_;
  int width_;
  Milliseconds patience_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::string shown_;
};

/// "forward [#####     ]  50 %", exactly as wide. With `more`, "step 1 of 2 [#####     ]  50 %, loss 2.3",
/// without the bar where there is no room for it.
[[nodiscard]] std::string progress_line(std::string_view what, double share, int width,
                                        std::string_view more = {});

}  // namespace heed::cli
