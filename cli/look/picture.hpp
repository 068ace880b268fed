// The picture of `heed look`.
#pragma once

#include <string>
#include <vector>

#include "heed/inspect/document.hpp"

namespace heed::cli {

/// Draws the maps of `heads` as PNG, SVG or PDF, chosen by the file extension.
void write_look_picture(const std::string& path, const Document& document,
                        const std::vector<HeadSummary>& heads, const std::string& title);

}  // namespace heed::cli
