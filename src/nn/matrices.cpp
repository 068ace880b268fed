#include "nn/matrices.hpp"

#include <algorithm>
#include <optional>

#include "nn/elements.hpp"
#include "nn/gemm.hpp"

namespace heed::nn::detail {
namespace {

using heed::detail::gemm;
using heed::detail::Matrix;

// [..., n] as [rows, n] without a copy, or nothing if the leading axes do not merge into one.
std::optional<TensorView> folded(const TensorView& x) {
  std::int64_t rows = 1;
  std::int64_t stride = 0;
  for (int axis = x.rank() - 2; axis >= 0; --axis) {
    const std::int64_t size = x.shape()[axis];
    if (size == 1) continue;
    if (rows != 1 && x.strides()[axis] != stride * rows) return std::nullopt;
    if (rows == 1) stride = x.strides()[axis];
    rows *= size;
  }
  return TensorView(x.data(), x.dtype(), {rows, x.shape().back()}, {stride, x.strides().back()});
}

// Whether a BLAS can read it: one axis is contiguous, and its lines are at least their length apart.
bool fits_blas(const TensorView& m) {
  const std::int64_t rows = m.shape()[0];
  const std::int64_t columns = m.shape()[1];
  const bool plain = m.strides()[1] == 1 && (rows == 1 || m.strides()[0] >= columns);
  const bool transposed = m.strides()[0] == 1 && (columns == 1 || m.strides()[1] >= rows);
  return plain || transposed;
}

template <class T>
Matrix<const T> matrix_of(const TensorView& m) {
  return {m.data_as<T>(), m.shape()[0], m.shape()[1], m.strides()[0], m.strides()[1]};
}

}  // namespace

TensorView as_matrix(const TensorView& x, Tensor& storage) {
  if (const auto matrix = folded(x); matrix && fits_blas(*matrix)) return *matrix;
  storage = Tensor::copy_of(x);
  return *folded(storage);
}

void multiply(const TensorView& a, const TensorView& b, bool add, const MutableTensorView& c) {
  if (c.count() == 0) return;
  with_real(c.dtype(), [&]<class T>(T) {
    T* to = c.data_as<T>();
    // An empty product is zero. It never reaches the BLAS, and BLAS libraries need not agree on it.
    if (a.shape()[1] == 0) {
      if (!add) std::fill_n(to, c.count(), T{0});
      return;
    }
    gemm<T>(matrix_of<T>(a), matrix_of<T>(b), add ? T{1} : T{0},
            {to, c.shape()[0], c.shape()[1], c.shape()[1]});
  });
}

void add_rows(const TensorView& x, const MutableTensorView& sums) {
  with_real(x.dtype(), [&]<class T>(T) {
    T* to = sums.data_as<T>();
    for (std::int64_t row = 0; row < x.shape()[0]; ++row) {
      const T* from = x.data_as<T>() + row * x.strides()[0];
      for (std::int64_t column = 0; column < x.shape()[1]; ++column)
        to[column] += from[column * x.strides()[1]];
    }
  });
}

}  // namespace heed::nn::detail
