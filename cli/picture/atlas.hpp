// All heads of a model as one poster.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "picture/canvas.hpp"
#include "picture/head_map.hpp"

namespace heed::cli {

/// A head as the poster shows it. Texts are printable.
struct AtlasHead {
  std::string name;    ///< "induction", …, "mixed"
  double score = 0;    ///< behind the name; NaN: none
  double entropy = 0;  ///< nats
  HeadMap map;
  std::string example;  ///< "be → or 0.93", or empty
};

struct AtlasCard {
  std::string label;  ///< "3.1"
  AtlasHead head;
  std::optional<AtlasHead> other;  ///< of the other model, drawn to the right
  std::string note;                ///< below both, or empty
};

struct AtlasPage {
  std::string title;
  std::vector<std::string> about;   ///< lines below it
  std::vector<std::string> layers;  ///< names of the grid's rows; none: cards fill the page in their order
  std::vector<std::int64_t> in_layers;  ///< how many cards each of them has
  std::vector<AtlasCard> cards;
};

/// A page of A3, upright or across, whichever gives the larger maps; the file's bytes. A PNG has 144 pixels
/// an inch, and more where maps would be small.
[[nodiscard]] std::string draw_atlas(const AtlasPage& page, PictureFormat format);

}  // namespace heed::cli
