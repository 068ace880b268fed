// A poster of all heads of a model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "picture/canvas.hpp"
#include "picture/head_map.hpp"

namespace heed::cli {

/// A head on the poster. Texts are printable.
struct AtlasHead {
  std::string name;    ///< "induction", …, "mixed"
  double score = 0;    ///< the score behind the name; NaN: none
  double entropy = 0;  ///< nats
  HeadMap map;
  std::string example;  ///< "be → or 0.93", or empty
};

struct AtlasCard {
  std::string label;  ///< "3.1"
  AtlasHead head;
  std::optional<AtlasHead> other;  ///< the same head of the other model, drawn on the right
  std::string note;                ///< text below the maps, or empty
};

struct AtlasPage {
  std::string title;
  std::vector<std::string> about;       ///< lines below the title
  std::vector<std::string> layers;      ///< names; empty: cards follow one another
  std::vector<std::int64_t> in_layers;  ///< number of cards in each layer
  std::vector<AtlasCard> cards;
};

/// Draws A3 pages, as few as atlas_layout() needs. Returns the bytes of one file for a PDF, else of a file
/// for each page. A PNG has 144 pixels per inch, or more if maps would be small.
[[nodiscard]] std::vector<std::string> draw_atlas(const AtlasPage& page, PictureFormat format);

}  // namespace heed::cli
