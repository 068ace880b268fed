// Properties of the machine.
#pragma once

#include <string>

namespace heed::cli {

/// Physical memory in bytes.
[[nodiscard]] double memory_of_machine();

/// "1.5 GB", "40.0 GB", "512 B": decimal units.
[[nodiscard]] std::string size_text(double bytes);

}  // namespace heed::cli
