#include "terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iostream>
#include <string_view>

namespace heed::cli {
namespace {

constexpr int kDefaultWidth = 80;
constexpr int kLeastWidth = 60;
constexpr int kMaxWidth = 10000;  // a larger COLUMNS is a mistake

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

Color color_of_environment() {
  if (!environment("NO_COLOR").empty()) return Color::none;
  const std::string_view term = environment("TERM");
  if (term.empty() || term == "dumb") return Color::none;
  const std::string_view colorterm = environment("COLORTERM");
  if (colorterm == "truecolor" || colorterm == "24bit" || contains(term, "-direct")) return Color::full;
  return contains(term, "256color") ? Color::palette : Color::none;
}

int width_of(int descriptor) {
  const std::string_view columns = environment("COLUMNS");
  int width = 0;
  const auto [end, error] = std::from_chars(columns.data(), columns.data() + columns.size(), width);
  const bool whole = error == std::errc() && end == columns.data() + columns.size();
  if (whole && width > 0 && width <= kMaxWidth) return width;
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return kDefaultWidth;
}

}  // namespace

Terminal terminal_at(int descriptor) {
  Terminal terminal;
  terminal.interactive = isatty(descriptor) == 1;
  terminal.color = terminal.interactive ? color_of_environment() : Color::none;
  terminal.width = width_of(descriptor);
  return terminal;
}

TextOutput standard_output() {
  const Terminal terminal = terminal_at(STDOUT_FILENO);
  return {std::cout, terminal.color, std::max(kLeastWidth, terminal.width)};
}

}  // namespace heed::cli
