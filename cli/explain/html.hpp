// An explanation as a page to look at.
#pragma once

#include <string>

#include "explain/steps.hpp"

namespace heed::cli {

/// Every step and the weights it is computed with, in one HTML file. Throws Error (invalid_argument) where
/// that would be more than a page holds; see heed/page.hpp.
void write_html(const std::string& path, const Model& model, const Explanation& explanation);

}  // namespace heed::cli
