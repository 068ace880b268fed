#include "bench/progress.hpp"

#include <unistd.h>

#include <iostream>

#include "draw/lettering.hpp"
#include "terminal.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {
constexpr std::size_t kBar = 24;  // columns between the brackets
}

Progress::Progress(std::size_t total) : total_(total) {
  const Terminal terminal = terminal_at(STDERR_FILENO);
  enabled_ = terminal.interactive;
  width_ = terminal.width - 1;  // a terminal may wrap a line that is full
}

Progress::~Progress() { clear(); }

void Progress::show(std::size_t done, const std::string& doing) {
  if (!enabled_) return;
  clear();
  const std::size_t full = kBar * done / total_;
  const std::string line = shortened("[" + std::string(full, '#') + std::string(kBar - full, '.') + "] " +
                                         std::to_string(done) + "/" + std::to_string(total_) + "  " + doing,
                                     width_);
  std::cerr << line << std::flush;
  shown_ = display_width(line);
}

void Progress::clear() {
  if (shown_ == 0) return;
  std::cerr << '\r' << spaces(shown_) << '\r' << std::flush;
  shown_ = 0;
}

}  // namespace heed::cli
