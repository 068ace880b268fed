// Properties of the machine, and helpers of its measurements.
#pragma once

#include <string>
#include <vector>

namespace heed::cli {

/// Physical memory in bytes.
[[nodiscard]] double memory_of_machine();

/// Throws UsageError if `what` needs more than half of this machine's memory.
void require_memory(const std::string& what, double bytes);

/// "1.5 GB", "40.0 GB", "512 B": decimal units.
[[nodiscard]] std::string size_text(double bytes);
/// The middle value, or the mean of the two in the middle.
[[nodiscard]] double median(std::vector<double> values);

}  // namespace heed::cli
