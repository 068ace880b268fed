// Matrix products in f64 for the rows that are recomputed. Each row of a tensor is read once for all these
// rows.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "attention/kernels/shared/arguments.hpp"
#include "attention/problem/visible_keys.hpp"

namespace heed::detail {

/// A factor that marks a missing term: the number it would multiply may be NaN or infinite. No other factor
/// is -0.
inline constexpr double kNoTerm = -0.0;

/// A matrix of doubles. Element [row][k] is at row * row_stride + k * step.
struct F64Matrix {
  double* data;
  std::int64_t rows, row_stride, step = 1;
};

/// The working memory of one thread.
class F64Products {
 public:
  /// Reads row j of a tensor.
  using ReadRow = std::function<void(std::int64_t j, std::span<double> to)>;

  /// to[r][j] = <a[r], row j> for rows `range` of a tensor with `width` columns. Rows of `to` must have room
  /// for kSpare more numbers.
  void dot(const F64Matrix& a, const ReadRow& read, const KeyRange& range, std::int64_t width,
           const F64Matrix& to);

  /// to[r] += sum_j a[r][j] row j. Rows of `to` are padded(width) wide.
  void add_combined(const F64Matrix& a, const ReadRow& read, const KeyRange& range, std::int64_t width,
                    const F64Matrix& to);

  static constexpr std::int64_t kRows = 32;  ///< rows of `a`; enough to make reading a tensor row worth while
  static constexpr std::int64_t kSpare = cpu::kF64Columns;
  static std::int64_t padded(std::int64_t width) {
    return (width + cpu::kF64Columns - 1) / cpu::kF64Columns * cpu::kF64Columns;
  }

 private:
  std::vector<double> row_, chunk_;
};

}  // namespace heed::detail
