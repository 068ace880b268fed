#include "terminal.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <iostream>
#include <string_view>
#include <system_error>

#include "core/message.hpp"
#include "heed/error.hpp"

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

namespace {

[[noreturn]] void fail(int error_number) {
  detail::refuse(ErrorCode::io,
                 "standard output could not be written: ", std::generic_category().message(error_number));
}

}  // namespace

void hold_standard_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) != -1) continue;
    // /dev/null opened in the wrong mode fails with EBADF, as a closed descriptor does.
    const int placeholder = open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    if (placeholder != descriptor) std::_Exit(EXIT_FAILURE);
  }
}

void require_standard_output() {
  const int flags = fcntl(STDOUT_FILENO, F_GETFL);
  if (flags == -1 || (flags & O_ACCMODE) == O_RDONLY) fail(EBADF);
}

void with_standard_output(const std::function<void()>& work) {
  std::cout.exceptions(std::ios::badbit);  // a check at the end would not find the reason in errno
  try {
    work();
    std::cout.flush();
  } catch (...) {
    const int reason = errno;
    const bool is_written = !std::cout.bad();
    std::cout.exceptions(std::ios::goodbit);  // the message flushes std::cout
    if (is_written) throw;
    fail(reason);
  }
}

}  // namespace heed::cli
