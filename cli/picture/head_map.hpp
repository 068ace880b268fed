// The weights of one head as a picture.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heed/document.hpp"
#include "picture/canvas.hpp"

namespace heed::cli {

/// A matrix of shares: single weights, or of bins the share that a row gives the bin's keys, on average over
/// the bin's rows.
struct HeadMap {
  std::int64_t rows = 0, columns = 0;
  std::vector<double> shares;                        ///< row by row; NaN where a mask forbids the key
  std::vector<std::string> row_words, column_words;  ///< printable; none for bins, and without tokens
  bool bins = false;
  /// The largest share outside the first column and rows that may see one key only, which say nothing; over
  /// all where there is no other.
  double largest = 1;

  [[nodiscard]] double at(std::int64_t row, std::int64_t column) const {
    return shares[static_cast<std::size_t>(row * columns + column)];
  }
};

/// Of all heads of the document, by batch entry, then head: single weights where it has at most `most` rows
/// and keys, else `most` bins at most along a side.
[[nodiscard]] std::vector<HeadMap> head_maps(const Document& document, std::int64_t most);
/// The same of one head.
[[nodiscard]] HeadMap head_map(const Document& document, std::int64_t batch, std::int64_t head,
                               std::int64_t most);

struct MapStyle {
  Ink ink;
  double full = 1;       ///< the share that has the full ink
  bool root = false;     ///< the ink grows with the square root of the share: small ones are seen
  bool numbers = false;  ///< two decimals in cells
  bool words = false;    ///< beside rows and above columns: outside the box, within `margin`
  double margin = 0;
  bool as_image = false;  ///< an image in place of a rectangle a cell: for many cells
};

/// What the widest word needs beside cells of this size, `most` at most; 0 without words.
[[nodiscard]] double word_margin(Canvas& canvas, const HeadMap& map, double cell, double most);
void draw_map(Canvas& canvas, const Box& box, const HeadMap& map, const MapStyle& style);
/// Its scale: a bar with ticks, 24 points high and at least 120 wide.
void draw_scale(Canvas& canvas, const Box& box, const MapStyle& style);
/// ".38"; "1" from 0.995 on.
[[nodiscard]] std::string short_share(double share);

}  // namespace heed::cli
