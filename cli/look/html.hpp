// What was looked at, as a page.
#pragma once

#include <optional>
#include <string>

#include "heed/document.hpp"
#include "heed/page.hpp"
#include "look/arguments.hpp"

namespace heed::cli {

/// The command line of this call without what it asked for and wrote, quoted for a shell: to it the page adds
/// its questions. A document that was read or written stands for the tensors.
[[nodiscard]] std::string question_command(const CLI::App& app, const LookArguments& arguments);

/// What the page shows of a document that was looked at. The report gains what the page holds besides: the
/// whole matrix where a head has at most kFullWeightsCells cells, else the pieces around --tile-at, 256 rows
/// and keys each. `proof`, where the page says it, and the document must outlive the page.
[[nodiscard]] HtmlPage look_page(Document& document, const LookArguments& arguments,
                                 const std::string& command, const std::optional<DocumentCheck>& proof);

}  // namespace heed::cli
