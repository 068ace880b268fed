// Heat maps on the terminal: a matrix of shares with words on both axes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heed/tensor.hpp"
#include "terminal.hpp"

namespace heed::cli {

struct HeatMap {
  std::vector<std::string> rows;     ///< printable labels, one per row
  std::vector<std::string> columns;  ///< printable labels, one per column
  TensorView values;                 ///< [rows, columns], floating point, at least 0
  /// bool [rows, columns]. A cell that a mask forbids is false, and drawn as "·" rather than as zero.
  std::optional<TensorView> allowed;
};

/// Draws one line per row below the column words, then a legend. Colours run from 0 to the largest value;
/// without colour, characters run from light to dark. Cells with enough room show their number. If all
/// numbers are small, they are multiples of a power of ten given in the legend. Returns nothing if the matrix
/// has more than 100 rows or more columns than fit.
[[nodiscard]] std::optional<std::vector<std::string>> draw_heatmap(const HeatMap& map, int indent, int width,
                                                                   Color color);

}  // namespace heed::cli
