#include "progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iostream>

#include "draw/lettering.hpp"
#include "terminal.hpp"

namespace heed::cli {
namespace {

constexpr int kName = 28;    // columns
constexpr int kPercent = 6;  // " 100 %"

}  // namespace

std::string progress_line(std::string_view what, double share, int width) {
  const double done = std::clamp(share, 0.0, 1.0);
  const int bar = std::max(1, width - kName - kPercent - 3);
  const auto full = static_cast<std::size_t>(std::floor(done * bar));
  std::array<char, 16> percent{};
  std::snprintf(percent.data(), percent.size(), " %3.0f %%", std::floor(100 * done));
  return left_aligned(std::string(what), kName) + " [" + std::string(full, '#') +
         std::string(static_cast<std::size_t>(bar) - full, ' ') + "]" + percent.data();
}

ProgressBar::ProgressBar(Milliseconds patience)
    : ProgressBar(std::cerr, isatty(STDERR_FILENO) == 1 ? terminal_at(STDERR_FILENO).width : 0, patience) {}

void ProgressBar::clear() {
  if (!shown_.empty()) out_ << '\r' << std::string(shown_.size(), ' ') << '\r' << std::flush;
  shown_.clear();
}

void ProgressBar::show(std::string_view what, double share) {
  if (width_ == 0 || std::chrono::steady_clock::now() - begin_ < patience_) return;
  const std::string line = progress_line(what, share, std::max(40, width_ - 1));
  if (line == shown_) return;
  shown_ = line;
  out_ << '\r' << line << std::flush;
}

}  // namespace heed::cli
