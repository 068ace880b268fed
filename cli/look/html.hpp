// What was looked at, as a page.
#pragma once

#include <string>

#include "heed/document.hpp"
#include "look/arguments.hpp"

namespace heed::cli {

/// The command line of this call without what it asked for and wrote, quoted for a shell: to it the page adds
/// its questions. A document that was read or written stands for the tensors.
[[nodiscard]] std::string question_command(const CLI::App& app, const LookArguments& arguments);

/// Writes the page of arguments.html. The report gains what the page shows besides: the whole matrix where a
/// head has at most kFullWeightsCells cells, else the pieces around --tile-at, 256 rows and keys each.
void write_look_page(Document& document, const LookArguments& arguments, const std::string& command);

}  // namespace heed::cli
