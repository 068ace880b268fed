// A matrix as numbers, with names beside its rows and above its columns.
#pragma once

#include <string>
#include <vector>

#include "heed/tensor.hpp"
#include "terminal.hpp"

namespace heed::cli {

/// How numbers are written that stand side by side: with as many decimals as the largest of them leaves room
/// for. Every number takes `width` columns.
class NumberFormat {
 public:
  /// For the numbers of a tensor of floats or integers.
  explicit NumberFormat(const TensorView& values);
  [[nodiscard]] std::string operator()(double value) const;
  static constexpr int kWidth = 8;

 private:
  int decimals_ = 0;
  bool exponent_ = false;
};

struct Table {
  std::vector<std::string> rows;     ///< labels, one a row
  std::vector<std::string> columns;  ///< labels, one a column; or none
  TensorView values;                 ///< [rows, columns], any dtype
};

/// Lines that begin with `indent` spaces and take at most `width` columns. What does not fit is left out of
/// the middle, "…" in its place: columns beyond the width, and rows beyond 12.
[[nodiscard]] std::vector<std::string> draw_table(const Table& table, int indent, int width, Color color);

}  // namespace heed::cli
