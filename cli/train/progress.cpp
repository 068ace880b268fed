#include "train/progress.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ostream>

namespace heed::cli {
namespace {

constexpr auto kRefresh = std::chrono::milliseconds(100);
constexpr int kLongestBar = 30;
constexpr std::int64_t kLines = 10;  // where there is no terminal

}  // namespace

std::string duration_text(double seconds) {
  const auto whole = static_cast<long long>(std::llround(std::clamp(seconds, 0.0, 1e15)));
  if (whole < 60) return std::to_string(whole) + " s";
  if (whole < 3600) return std::to_string(whole / 60) + " min " + std::to_string(whole % 60) + " s";
  return std::to_string(whole / 3600) + " h " + std::to_string(whole / 60 % 60) + " min";
}

std::string train_line(std::int64_t step, std::int64_t steps, double loss, double tokens_per_second,
                       double seconds_left, int width) {
  std::array<char, 256> text{};
  const double share = steps > 0 ? static_cast<double>(step) / static_cast<double>(steps) : 1;
  std::snprintf(text.data(), text.size(), " %3.0f %%, loss %.3f, %.0f tokens/s, %s left",
                std::floor(100 * share), loss, tokens_per_second, duration_text(seconds_left).c_str());
  const std::string head = "step " + std::to_string(step) + " of " + std::to_string(steps);
  const int room =
      width - static_cast<int>(head.size()) - static_cast<int>(std::string(text.data()).size()) - 3;
  std::string bar;
  if (room >= 4) {
    const int length = std::min(room, kLongestBar);
    const auto full = static_cast<std::size_t>(std::floor(share * length));
    bar = " [" + std::string(full, '#') + std::string(static_cast<std::size_t>(length) - full, ' ') + "]";
  }
  return (head + bar + text.data()).substr(0, static_cast<std::size_t>(std::max(width, 1)));
}

TrainProgress::TrainProgress(std::ostream& out, int width, std::int64_t first, std::int64_t steps,
                             std::int64_t tokens_a_step)
    : out_(out), width_(width), first_(first), steps_(steps), tokens_a_step_(tokens_a_step) {}

TrainProgress::~TrainProgress() { clear(); }

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
  constexpr int kPlainWidth = 100;
  const std::string line = train_line(step, steps_, loss, rate, left, width_ > 0 ? width_ - 1 : kPlainWidth);
  if (width_ == 0) {
    out_ << line << std::endl;
    return;
  }
  out_ << '\r' << line << std::string(shown_ > line.size() ? shown_ - line.size() : 0, ' ') << std::flush;
  shown_ = line.size();
}

void TrainProgress::clear() {
  if (shown_ > 0) out_ << '\r' << std::string(shown_, ' ') << '\r' << std::flush;
  shown_ = 0;
}

}  // namespace heed::cli
