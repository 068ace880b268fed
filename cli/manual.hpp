// Manual pages, from what --help prints.
#pragma once

#include <string>

#include "command.hpp"

namespace heed::cli {

/// The manual page in roff of heed, or of its subcommand `page`. Throws UsageError if there is none.
[[nodiscard]] std::string manual_page(const CLI::App& heed, const std::string& page);

}  // namespace heed::cli
