#include "attention/execute/f64_products.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "attention/isa/dispatch.hpp"
#include "core/index.hpp"

namespace heed::detail {
namespace {

// Rows of a tensor per product; they stay in the first-level cache.
constexpr std::int64_t kTensorRows = 64, kTransposedRows = 32;
// Rows that are transposed together, so that whole cache lines are written.
constexpr std::int64_t kTransposedTogether = 8;

bool is_finite(std::span<const double> row) {
  int wrong = 0;  // compilers vectorise this loop
  for (const double x : row) wrong |= static_cast<int>(!(std::abs(x) <= std::numeric_limits<double>::max()));
  return wrong == 0;
}

bool is_term(double factor) { return factor != 0 || !std::signbit(factor); }

// Adds row k of the chunk to those rows of `a` that have a term for it.
void add_row(const F64Matrix& a, std::int64_t k, std::span<const double> row, const F64Matrix& to) {
  for (std::int64_t r = 0; r < a.rows; ++r) {
    const double factor = a.data[r * a.row_stride + k * a.step];
    if (!is_term(factor)) continue;
    double* sum = to.data + r * to.row_stride;
    for (const double x : row) *sum++ += factor * x;
  }
}

}  // namespace

void F64Products::dot(const F64Matrix& a, const ReadRow& read, const KeyRange& range, std::int64_t width,
                      const F64Matrix& to) {
  row_.resize(index(kTransposedTogether * width));
  chunk_.assign(index(width * kTransposedRows), 0.0);
  const std::size_t zeros = index(padded(std::max<std::int64_t>(0, range.end - range.begin)));
  for (std::int64_t r = 0; r < a.rows; ++r)
    std::memset(to.data + r * to.row_stride + range.begin, 0, zeros * sizeof(double));
  for (std::int64_t begin = range.begin; begin < range.end; begin += kTransposedRows) {
    const std::int64_t count = std::min(kTransposedRows, range.end - begin);
    for (std::int64_t j = 0; j < count; j += kTransposedTogether) {
      const std::int64_t rows = std::min(kTransposedTogether, count - j);
      for (std::int64_t r = 0; r < rows; ++r)
        read(begin + j + r, std::span(row_).subspan(index(r * width), index(width)));
      for (std::int64_t d = 0; d < width; ++d) {
        double* to_column = chunk_.data() + d * kTransposedRows + j;
        for (std::int64_t r = 0; r < kTransposedTogether; ++r) to_column[r] = row_[index(r * width + d)];
      }
    }
    double* sums = to.data + begin;
    cpu::kernels().all().add_f64_product({a.data, a.row_stride, a.step, chunk_.data(), kTransposedRows, sums,
                                          to.row_stride, a.rows, width, padded(count)});
  }
}

void F64Products::add_combined(const F64Matrix& a, const ReadRow& read, const KeyRange& range,
                               std::int64_t width, const F64Matrix& to) {
  const std::int64_t stride = padded(width);
  row_.resize(index(width));
  chunk_.assign(index(stride * kTensorRows), 0.0);
  for (std::int64_t begin = range.begin; begin < range.end; begin += kTensorRows) {
    const std::int64_t count = std::min(kTensorRows, range.end - begin);
    const F64Matrix factors{a.data + begin * a.step, a.rows, a.row_stride, a.step};
    std::int64_t done = 0;
    const auto multiply_to = [&](std::int64_t end) {
      if (done < end)
        cpu::kernels().all().add_f64_product({factors.data + done * a.step, a.row_stride, a.step,
                                              chunk_.data() + done * stride, stride, to.data, to.row_stride,
                                              a.rows, end - done, stride});
      done = end;
    };
    for (std::int64_t j = 0; j < count; ++j) {
      const std::span<double> row = std::span(chunk_).subspan(index(j * stride), index(width));
      read(begin + j, row);
      if (is_finite(row)) continue;
      multiply_to(j);
      add_row(factors, j, row, to);
      done = j + 1;
    }
    multiply_to(count);
  }
}

}  // namespace heed::detail
