// Matrix products. The only place that speaks to a BLAS.
#pragma once

#include <cstdint>

namespace heed::detail {

/// Element (i, j) lies at data[i * row_stride + j * column_stride]; one of the strides is 1 and the other is
/// at least the size of the axis that is contiguous, so that a BLAS can read it, transposed or not.
template <class T>
struct Matrix {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 1;

  [[nodiscard]] Matrix transposed() const { return {data, columns, rows, column_stride, row_stride}; }
};

/// c = a b + beta c, with a [M, K], b [K, N] and c [M, N], whose columns are contiguous. With beta = 0 what
/// c held is not read. T is float or double. Throws Error (invalid_argument) where a size or a stride is
/// beyond the 32 bits that a BLAS counts with.
template <class T>
void gemm(const Matrix<const T>& a, const Matrix<const T>& b, T beta, const Matrix<T>& c);

extern template void gemm(const Matrix<const float>&, const Matrix<const float>&, float,
                          const Matrix<float>&);
extern template void gemm(const Matrix<const double>&, const Matrix<const double>&, double,
                          const Matrix<double>&);

/// How many threads of its own OpenBLAS may use from now on, in the whole process; another BLAS is not asked.
void limit_blas_threads(int threads);

}  // namespace heed::detail
