// A picture of several heads' maps side by side, with their words and numbers.
#pragma once

#include <string>
#include <vector>

#include "picture/canvas.hpp"
#include "picture/head_map.hpp"

namespace heed::cli {

struct DrawnHead {
  std::string title;  ///< "layer 3, head 1: induction 0.93"
  std::string name;   ///< the head's name, "induction", which determines the ink
  HeadMap map;
};

struct HeadsPicture {
  std::string title;
  std::vector<std::string> about;  ///< lines below the title
  std::vector<DrawnHead> heads;    ///< at least one, their maps of the same size
};

/// Draws a page as large as its maps need. Returns the file's bytes.
[[nodiscard]] std::string draw_heads(const HeadsPicture& picture, PictureFormat format);

}  // namespace heed::cli
