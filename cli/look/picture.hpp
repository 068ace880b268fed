// What was looked at, as a picture.
#pragma once

#include <string>
#include <vector>

#include "heed/document.hpp"

namespace heed::cli {

/// Draws the maps of `heads` as PNG, SVG or PDF, by the ending of the path.
void write_look_picture(const std::string& path, const Document& document,
                        const std::vector<HeadSummary>& heads, const std::string& title);

}  // namespace heed::cli
