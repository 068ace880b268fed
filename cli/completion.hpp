// Completion of the command line by shells, from the options of the help.
#pragma once

#include <string>
#include <vector>

#include "command.hpp"

namespace heed::cli {

[[nodiscard]] const std::vector<std::string>& completing_shells();
/// The completion script of heed for one of these shells. It offers commands, options, and the words, files
/// or folders that an option takes.
[[nodiscard]] std::string completion_script(const CLI::App& heed, const std::string& shell);

}  // namespace heed::cli
