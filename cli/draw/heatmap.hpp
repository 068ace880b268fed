// A matrix of shares as a picture on the terminal, with words on both axes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heed/tensor.hpp"
#include "terminal.hpp"

namespace heed::cli {

struct HeatMap {
  std::vector<std::string> rows;     ///< printable labels, one a row
  std::vector<std::string> columns;  ///< one a column
  TensorView values;                 ///< [rows, columns], floating, at least 0
  /// bool [rows, columns], false for cells that a mask forbids: they are drawn as "·", not as zero.
  std::optional<TensorView> allowed;
};

/// One line a row, under the columns' words, and a legend at the end. Colours run from 0 to the largest value
/// (light to dark characters where there is no colour); a cell with room for it holds its number too,
/// where all are small in multiples of a power of ten that stands in the legend. Nothing
/// where the matrix is too large: more than 100 rows, or more columns than fit.
[[nodiscard]] std::optional<std::vector<std::string>> draw_heatmap(const HeatMap& map, int indent, int width,
                                                                   Color color);

}  // namespace heed::cli
