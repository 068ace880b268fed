// Matrix products. Only this file's source calls a BLAS.
#pragma once

#include <cstdint>

namespace heed::detail {

/// Element (i, j) is data[i * row_stride + j * column_stride]. One stride is 1, and the other is at least the
/// size of the contiguous axis, so a BLAS can read the matrix, transposed or not.
template <class T>
struct Matrix {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 1;

  [[nodiscard]] Matrix transposed() const { return {data, columns, rows, column_stride, row_stride}; }
};

/// c = a b + beta c, with a [M, K], b [K, N] and c [M, N], whose columns are contiguous. With beta = 0, c is
/// not read. T is float or double. Throws Error (invalid_argument) if a size or stride exceeds the 32 bits of
/// a BLAS.
template <class T>
void gemm(const Matrix<const T>& a, const Matrix<const T>& b, T beta, const Matrix<T>& c);

extern template void gemm(const Matrix<const float>&, const Matrix<const float>&, float,
                          const Matrix<float>&);
extern template void gemm(const Matrix<const double>&, const Matrix<const double>&, double,
                          const Matrix<double>&);

/// Sets the number of OpenBLAS threads for the whole process; no effect on another BLAS.
void limit_blas_threads(int threads);

}  // namespace heed::detail
