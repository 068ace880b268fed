// The page of `heed look`.
#pragma once

#include <optional>
#include <string>

#include "heed/inspect/document.hpp"
#include "heed/inspect/page.hpp"
#include "look/arguments.hpp"

namespace heed::cli {

/// The shell command that repeats this call without its question and outputs; the page appends its own
/// questions. A saved or opened document replaces the input tensors.
[[nodiscard]] std::string question_command(const CLI::App& app, const LookArguments& arguments);

/// The page of a document. Adds the page's weights to the document's report: all of them if a head has at
/// most kFullWeightsCells cells (fewer for a model with many heads), else tiles of 256 rows and keys around
/// each --tile-at. The document and `proof`, if the page shows it, must outlive the page.
[[nodiscard]] HtmlPage look_page(Document& document, const LookArguments& arguments,
                                 const std::string& command, const std::optional<DocumentCheck>& proof);

}  // namespace heed::cli
