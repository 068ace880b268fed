// A progress bar on standard error.
#pragma once

#include <chrono>
#include <iosfwd>
#include <string>
#include <string_view>

namespace heed::cli {

/// Draws nothing if standard error is no terminal, or before `patience` has passed. The bar is erased at the
/// end.
class ProgressBar {
 public:
  using Milliseconds = std::chrono::milliseconds;
  static constexpr Milliseconds kPatience{500};

  /// Draws on standard error.
  explicit ProgressBar(Milliseconds patience = kPatience);
  /// `width` in columns; 0 draws nothing.
  ProgressBar(std::ostream& out, int width, Milliseconds patience = kPatience)
      : out_(out), width_(width), patience_(patience) {}
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void show(std::string_view what, double share, std::string_view more = {});
  void clear();  ///< call before printing anything else

 private:
  std::ostream& out_;
  int width_;
  Milliseconds patience_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::string shown_;
};

/// "forward [#####     ]  50 %", exactly `width` columns. With `more`: "step 1 of 2 [#####     ]  50 %, loss
/// 2.3"; the bar is left out if there is no room.
[[nodiscard]] std::string progress_line(std::string_view what, double share, int width,
                                        std::string_view more = {});

}  // namespace heed::cli
