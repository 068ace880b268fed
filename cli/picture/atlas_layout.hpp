// Where the cards of a poster stand: pages, lines and columns, and the size of the maps.
#pragma once

#include <cstdint>
#include <vector>

#include "picture/canvas.hpp"

namespace heed::cli {

/// The smallest side of a map: 8 mm in points.
constexpr double kLeastMapSide = 8 / 25.4 * 72;

struct AtlasGrid {
  std::vector<std::int64_t> in_layers;  ///< cards of each layer; empty: all cards follow one another
  std::int64_t cards = 0;
  int maps = 1;       ///< maps side by side on a card
  double header = 0;  ///< height of the text above the cards
};

struct AtlasPlace {
  std::int64_t page = 0;
  Box box;
};

/// Lengths are in points.
struct AtlasLayout {
  double width = 0, height = 0;  ///< of the page: A3, portrait or landscape
  std::int64_t pages = 1;
  double gap = 0;      ///< between the two maps of a card
  double letters = 0;  ///< font size
  double side = 0;     ///< side length of a map
  std::vector<AtlasPlace> cards;
  std::vector<AtlasPlace> layers;  ///< the strips for the layers' names; empty: no layers
};

/// The layout on the fewest pages whose maps are at least kLeastMapSide wide; of these, the one with the
/// largest maps. Layers stand below one another. Long layers take several lines, and short ones stand in
/// several blocks side by side. A layer that fits on no page makes all cards follow one another.
/// `letter_lines` is the height of the text on a card in multiples of the font size.
[[nodiscard]] AtlasLayout atlas_layout(const AtlasGrid& grid, double letter_lines);

/// The margin of a page.
constexpr double kAtlasEdge = 30;

}  // namespace heed::cli
