#include "machine.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "command.hpp"
#include "text.hpp"

namespace heed::cli {

double memory_of_machine() {
  return static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

void require_memory(const std::string& what, double bytes) {
  if (bytes > memory_of_machine() / 2)
    refuse_usage(what, " would need ", size_text(bytes), ", more than half of this machine's memory (",
                 size_text(memory_of_machine()), "); smaller sizes are expected");
}

std::string size_text(double bytes) {
  constexpr std::array kUnits = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  std::size_t unit = 0;
  while (bytes >= 999.95 && unit + 1 < kUnits.size()) {
    bytes /= 1000;
    ++unit;
  }
  return formatted(unit == 0 ? "%.0f " : "%.1f ", bytes) + kUnits[unit];
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace heed::cli
