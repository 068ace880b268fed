#include "progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "draw/lettering.hpp"
#include "terminal.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr int kName = 28;  // columns
constexpr int kLeastBar = 3;

}  // namespace

std::string progress_line(std::string_view what, double share, int width, std::string_view more) {
  const double done = std::clamp(share, 0.0, 1.0);
  const std::string name = more.empty() ? left_aligned(what, kName) : std::string(what);
  const std::string rest = formatted(" %3.0f %%", std::floor(100 * done)) + std::string(more);
  const int bar = width - display_width(name) - display_width(rest) - 3;
  if (bar < kLeastBar) return left_aligned(name + rest, width);
  const auto full = static_cast<int>(std::floor(done * bar));
  return name + " [" + std::string(static_cast<std::size_t>(full), '#') + spaces(bar - full) + "]" + rest;
}

ProgressBar::ProgressBar(Milliseconds patience)
    : ProgressBar(std::cerr, isatty(STDERR_FILENO) == 1 ? terminal_at(STDERR_FILENO).width : 0, patience) {}

void ProgressBar::clear() {
  if (!shown_.empty()) out_ << '\r' << spaces(display_width(shown_)) << '\r' << std::flush;
  shown_.clear();
}

void ProgressBar::show(std::string_view what, double share, std::string_view more) {
  if (width_ == 0 || std::chrono::steady_clock::now() - begin_ < patience_) return;
  const std::string line = progress_line(what, share, std::max(40, width_ - 1), more);
  if (line == shown_) return;
  shown_ = line;
  out_ << '\r' << line << std::flush;
}

}  // namespace heed::cli
