// A matrix of numbers with row and column labels.
#pragma once

#include <string>
#include <vector>

#include "heed/tensor.hpp"
#include "terminal.hpp"

namespace heed::cli {

/// A common format for the numbers of a table. The largest number determines the decimals. Every number takes
/// kWidth columns.
class NumberFormat {
 public:
  /// Chooses the format for a tensor of floats or integers.
  explicit NumberFormat(const TensorView& values);
  [[nodiscard]] std::string operator()(double value) const;
  static constexpr int kWidth = 8;

 private:
  int decimals_ = 0;
  bool exponent_ = false;
};

struct Table {
  std::vector<std::string> rows;     ///< labels, one per row
  std::vector<std::string> columns;  ///< labels, one per column; empty: no heading
  TensorView values;                 ///< [rows, columns], any dtype
};

/// Lines indented by `indent` spaces, at most `width` columns wide. Middle columns that do not fit, and
/// middle rows beyond 12, are replaced by "…".
[[nodiscard]] std::vector<std::string> draw_table(const Table& table, int indent, int width, Color color);

}  // namespace heed::cli
