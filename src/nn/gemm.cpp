#include "nn/gemm.hpp"

#include <cblas.h>  // defines OPENBLAS_VERSION if it is OpenBLAS

#include <algorithm>
#include <limits>
#include <type_traits>

#include "core/message.hpp"

namespace heed::detail {
namespace {

// The `int` of the CBLAS interface (of its usual LP64 build).
constexpr std::int64_t kMaxBlasSize = std::numeric_limits<int>::max();

int blas_int(std::int64_t value, const char* what) {
  if (value > kMaxBlasSize)
    refuse("a matrix product has ", value, " ", what, "; at most ", kMaxBlasSize, " are expected for a BLAS");
  return static_cast<int>(value);
}

struct BlasOperand {
  CBLAS_TRANSPOSE transpose;
  int leading;
};

// The matrix in row-major BLAS terms: rows `leading` apart, or the transpose of such a matrix.
template <class T>
BlasOperand blas_operand(const Matrix<const T>& m) {
  const bool plain = m.column_stride == 1;
  const std::int64_t lines = plain ? m.rows : m.columns;
  const std::int64_t length = plain ? m.columns : m.rows;
  // With a single line, its stride is meaningless; the least valid one is passed instead.
  const std::int64_t leading = lines > 1 ? (plain ? m.row_stride : m.column_stride) : length;
  return {plain ? CblasNoTrans : CblasTrans,
          blas_int(std::max<std::int64_t>(1, leading), "elements from one line to the next")};
}

}  // namespace

template <class T>
void gemm(const Matrix<const T>& a, const Matrix<const T>& b, T beta, const Matrix<T>& c) {
  if (c.rows == 0 || c.columns == 0) return;
  const int m = blas_int(c.rows, "rows");
  const int n = blas_int(c.columns, "columns");
  const int k = blas_int(a.columns, "inner elements");
  const BlasOperand left = blas_operand(a);
  const BlasOperand right = blas_operand(b);
  const int leading = blas_int(c.rows > 1 ? c.row_stride : c.columns, "elements from one line to the next");
  if constexpr (std::is_same_v<T, float>)
    cblas_sgemm(CblasRowMajor, left.transpose, right.transpose, m, n, k, 1, a.data, left.leading, b.data,
                right.leading, beta, c.data, leading);
  else
    cblas_dgemm(CblasRowMajor, left.transpose, right.transpose, m, n, k, 1, a.data, left.leading, b.data,
                right.leading, beta, c.data, leading);
}

void limit_blas_threads([[maybe_unused]] int threads) {
#ifdef OPENBLAS_VERSION
  openblas_set_num_threads(threads);
#endif
}

template void gemm(const Matrix<const float>&, const Matrix<const float>&, float, const Matrix<float>&);
template void gemm(const Matrix<const double>&, const Matrix<const double>&, double, const Matrix<double>&);

}  // namespace heed::detail
