// What the machine has.
#pragma once

#include <string>

namespace heed::cli {

/// Its physical memory, in bytes.
[[nodiscard]] double memory_of_machine();

/// "1.5 GB", "40.0 GB", "512 B": powers of ten.
[[nodiscard]] std::string size_text(double bytes);

}  // namespace heed::cli
