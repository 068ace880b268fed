#include "train/train_progress.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ostream>

namespace heed::cli {
namespace {

constexpr auto kRefresh = std::chrono::milliseconds(100);
// Number of lines and width without a terminal.
constexpr std::int64_t kLines = 10;
constexpr int kPlainWidth = 80;

}  // namespace

std::string duration_text(double seconds) {
  const auto whole = static_cast<long long>(std::llround(std::clamp(seconds, 0.0, 1e15)));
  if (whole < 60) return std::to_string(whole) + " s";
  if (whole < 3600) return std::to_string(whole / 60) + " min " + std::to_string(whole % 60) + " s";
  return std::to_string(whole / 3600) + " h " + std::to_string(whole / 60 % 60) + " min";
}

std::string train_text(double loss, double tokens_per_second, double seconds_left) {
  std::array<char, 128> text{};
  std::snprintf(text.data(), text.size(), ", loss %.3f, %.0f tokens/s, %s left", loss, tokens_per_second,
                duration_text(seconds_left).c_str());
  return text.data();
}

TrainProgress::TrainProgress(std::ostream& out, int width, std::int64_t first, std::int64_t steps,
                             std::int64_t tokens_a_step)
    : out_(out),
      width_(width),
      first_(first),
      steps_(steps),
      tokens_a_step_(tokens_a_step),
      bar_(out, width, ProgressBar::Milliseconds(0)) {}

double TrainProgress::seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

double TrainProgress::tokens_per_second(std::int64_t step) const {
  const double taken = seconds();
  return taken > 0 ? static_cast<double>((step - first_) * tokens_a_step_) / taken : 0;
}

void TrainProgress::show(std::int64_t step, double loss) {
  const bool last = step == steps_;
  if (width_ > 0 ? !last && Clock::now() - shown_at_ < kRefresh
                 : step * kLines / steps_ == (step - 1) * kLines / steps_)
    return;
  shown_at_ = Clock::now();
  const double rate = tokens_per_second(step);
  const double left = rate > 0 ? static_cast<double>((steps_ - step) * tokens_a_step_) / rate : 0;
  const std::string what = "step " + std::to_string(step) + " of " + std::to_string(steps_);
  const double share = static_cast<double>(step) / static_cast<double>(steps_);
  if (width_ > 0)
    bar_.show(what, share, train_text(loss, rate, left));
  else
    out_ << progress_line(what, share, kPlainWidth, train_text(loss, rate, left)) << std::endl;
}

}  // namespace heed::cli
