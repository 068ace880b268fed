// The weights of one head as a picture.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heed/inspect/document.hpp"
#include "picture/canvas.hpp"

namespace heed::cli {

/// A matrix of shares. A cell is either a single weight, or a bin: the weight on the bin's keys, averaged
/// over the bin's rows.
struct HeadMap {
  std::int64_t rows = 0, columns = 0;
  std::vector<double> shares;                        ///< row by row; NaN where a mask forbids the key
  std::vector<std::string> row_words, column_words;  ///< printable; empty for bins and without tokens
  bool bins = false;
  /// The largest share, without the first column and rows that see one key. Without any, the largest of all;
  /// 1 if all are 0.
  double largest = 1;

  [[nodiscard]] bool is_masked() const;  ///< in any cell
  [[nodiscard]] double at(std::int64_t row, std::int64_t column) const {
    return shares[static_cast<std::size_t>(row * columns + column)];
  }
};

/// The maps of all heads, ordered by batch entry, then head. Cells are single weights if the document has at
/// most `most` rows and keys. Otherwise they are bins, at most `most` per side.
[[nodiscard]] std::vector<HeadMap> head_maps(const Document& document, std::int64_t most);
[[nodiscard]] HeadMap head_map(const Document& document, std::int64_t batch, std::int64_t head,
                               std::int64_t most);

struct MapStyle {
  Ink ink;
  double full = 1;    ///< the share drawn with full ink
  bool root = false;  ///< the ink grows with the square root of the share, so that small shares are visible
  bool numbers = false;  ///< two decimals in cells
  bool words = false;    ///< draw words beside rows and above columns, outside the box but within `margin`
  double margin = 0;
  bool as_image = false;  ///< draw one image instead of a rectangle per cell; for many cells
};

/// The margin for the widest word beside cells of this size, at most `most`; 0 without words.
[[nodiscard]] double word_margin(Canvas& canvas, const HeadMap& map, double cell, double most);
void draw_map(Canvas& canvas, const Box& box, const HeadMap& map, const MapStyle& style);
/// Draws a scale bar with ticks, 24 points high and at least 120 wide.
void draw_scale(Canvas& canvas, const Box& box, const MapStyle& style);
/// ".38"; "1" for shares of at least 0.995.
[[nodiscard]] std::string short_share(double share);

}  // namespace heed::cli
