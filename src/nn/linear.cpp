#include <algorithm>
#include <optional>
#include <utility>

#include "heed/nn/layers.hpp"
#include "heed/tensor.hpp"
#include "nn/checks.hpp"
#include "nn/elements.hpp"
#include "nn/gemm.hpp"
#include "nn/init.hpp"

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

// `x` [..., n] as [rows, n] for a BLAS: a view of x, or a view of a copy in `storage` if its strides require
// one.
TensorView as_matrix(const TensorView& x, Tensor& storage) {
  if (const auto matrix = folded(x); matrix && fits_blas(*matrix)) return *matrix;
  storage = Tensor::copy_of(x);
  return *folded(storage);
}

// c [M, N] = a [M, K] b [K, N], or with `add` c += a b. c is contiguous. a and b come from as_matrix(),
// possibly with swapped axes. All have the same dtype, f32 or f64.
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

// sums [n] += the rows of x [rows, n], in their order.
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

}  // namespace
}  // namespace heed::nn::detail

namespace heed::nn {
namespace {

using detail::refuse;

// [..., n] as [rows, n].
MutableTensorView rows_of(Tensor& x) {
  const std::int64_t columns = x.shape().back();
  return x.mutable_view().reshape({x.count() / columns, columns});
}

void check(const TensorView& weight, const std::optional<TensorView>& bias) {
  detail::require_real(weight, "weight");
  detail::require_rank(weight, "weight", 2, "[out, in]");
  if (!bias) return;
  detail::require_dtype(*bias, "bias", weight.dtype(), "weight");
  if (bias->shape() != Dims{weight.shape()[0]})
    refuse("bias has shape ", to_string(bias->shape()), "; [", weight.shape()[0],
           "] is expected for a weight of shape ", weight.shape());
}

void check(const TensorView& x, const TensorView& weight, const std::optional<TensorView>& bias) {
  check(weight, bias);
  detail::require_dtype(x, "x", weight.dtype(), "weight");
  if (x.rank() < 1 || x.shape().back() != weight.shape()[1])
    refuse("x has shape ", x.shape(), "; [..., ", weight.shape()[1], "] is expected for a weight of shape ",
           weight.shape());
}

}  // namespace

void set_blas_threads(int threads) {
  detail::require_size(threads, "threads");
  heed::detail::limit_blas_threads(threads);
}

Tensor linear(const TensorView& x, const TensorView& weight, const std::optional<TensorView>& bias) {
  check(x, weight, bias);
  Dims shape = x.shape();
  shape[shape.size() - 1] = weight.shape()[0];
  Tensor out = Tensor::uninitialized(shape, weight.dtype());
  if (out.count() == 0) return out;
  if (bias) copy(bias->expand(shape), out);
  Tensor x_copy;
  Tensor weight_copy;
  const TensorView right = detail::as_matrix(weight, weight_copy);
  detail::multiply(detail::as_matrix(x, x_copy), right.transpose(0, 1), bias.has_value(), rows_of(out));
  return out;
}

Linear::Linear(std::int64_t in, std::int64_t out, bool with_bias, Generator& generator, DType dtype) {
  detail::require_size(in, "in");
  detail::require_size(out, "out");
  weight = Tensor::uninitialized({out, in}, dtype);
  detail::init_linear_weight(generator, weight);
  if (!with_bias) return;
  bias = Tensor::uninitialized({out}, dtype);
  detail::init_linear_bias(generator, *bias, in);
}

Linear::Linear(Tensor matrix, std::optional<Tensor> offset)
    : weight(std::move(matrix)), bias(std::move(offset)) {
  check(weight, bias ? std::optional<TensorView>(*bias) : std::nullopt);
}

Tensor Linear::forward(const TensorView& x) const {
  if (!bias) return linear(x, weight);
  return linear(x, weight, bias->view());
}

// For y = x W^T + b over all rows: dx = dy W, dW = dy^T x, db = the sum of the rows of dy.
Tensor Linear::backward(const TensorView& grad_output, const TensorView& x, Linear& grads) const {
  check(x, weight, bias ? std::optional<TensorView>(*bias) : std::nullopt);
  Dims shape = x.shape();
  shape[shape.size() - 1] = weight.size(0);
  detail::require_like(grad_output, "grad_output", shape, weight.dtype());
  detail::require_like(grads.weight, "grads.weight", weight.shape(), weight.dtype());
  if (bias.has_value() != grads.bias.has_value())
    refuse(bias ? "grads.bias is missing; the layer has a bias" : "grads.bias is given; the layer has none");
  if (bias) detail::require_like(*grads.bias, "grads.bias", bias->shape(), weight.dtype());
  Tensor grad_x(x.shape(), weight.dtype());
  if (grad_output.count() == 0) return grad_x;
  Tensor x_copy, weight_copy, grad_copy;
  const TensorView grad = detail::as_matrix(grad_output, grad_copy);
  if (bias) detail::add_rows(grad, *grads.bias);
  if (x.count() == 0) return grad_x;
  detail::multiply(grad, detail::as_matrix(weight, weight_copy), false, rows_of(grad_x));
  detail::multiply(grad.transpose(0, 1), detail::as_matrix(x, x_copy), true, grads.weight);
  return grad_x;
}

std::vector<NamedParameter> Linear::parameters() {
  std::vector<NamedParameter> named = {{"weight", &weight}};
  if (bias) named.push_back({"bias", &*bias});
  return named;
}

}  // namespace heed::nn
