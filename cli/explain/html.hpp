// An explanation as an HTML page.
#pragma once

#include <string>

#include "explain/steps.hpp"

namespace heed::cli {

/// Writes every step and its weights to one HTML file. The page's title is the sentence if `title` is empty.
/// Throws Error (invalid_argument) if the page would be too large; see heed/inspect/page.hpp.
void write_html(const std::string& path, const Model& model, const Explanation& explanation,
                const std::string& title);

}  // namespace heed::cli
