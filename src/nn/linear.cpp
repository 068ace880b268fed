#include <utility>

#include "heed/nn.hpp"
#include "nn/checks.hpp"
#include "nn/gemm.hpp"
#include "nn/init.hpp"

namespace heed::nn {
namespace {

using detail::refuse;
using heed::detail::gemm;
using heed::detail::Matrix;

// [..., n] as [rows, n] without a copy, or nothing where the leading axes do not fold into one.
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

// Whether a BLAS can read it: one axis contiguous, the lines along it apart by at least their length.
bool fits_blas(const TensorView& m) {
  const std::int64_t rows = m.shape()[0];
  const std::int64_t columns = m.shape()[1];
  const bool plain = m.strides()[1] == 1 && (rows == 1 || m.strides()[0] >= columns);
  const bool transposed = m.strides()[0] == 1 && (columns == 1 || m.strides()[1] >= rows);
  return plain || transposed;
}

// `x` as a matrix for gemm(); copied into `storage` only where its strides leave no other way.
TensorView as_matrix(const TensorView& x, Tensor& storage) {
  if (const auto matrix = folded(x); matrix && fits_blas(*matrix)) return *matrix;
  storage = Tensor::copy_of(x);
  return *folded(storage);
}

void check(const TensorView& x, const TensorView& weight, const std::optional<TensorView>& bias) {
  detail::require_real(weight, "weight");
  detail::require_rank(weight, "weight", 2, "[out, in]");
  detail::require_dtype(x, "x", weight.dtype(), "weight");
  if (x.rank() < 1 || x.shape().back() != weight.shape()[1])
    refuse("x has shape " + to_string(x.shape()) + "; [..., " + std::to_string(weight.shape()[1]) +
           "] is expected for a weight of shape " + to_string(weight.shape()));
  if (!bias) return;
  detail::require_dtype(*bias, "bias", weight.dtype(), "weight");
  if (bias->shape() != Dims{weight.shape()[0]})
    refuse("bias has shape " + to_string(bias->shape()) + "; [" + std::to_string(weight.shape()[0]) +
           "] is expected for a weight of shape " + to_string(weight.shape()));
}

template <class T>
Matrix<const T> matrix_of(const TensorView& m) {
  return {m.data_as<T>(), m.shape()[0], m.shape()[1], m.strides()[0], m.strides()[1]};
}

// out [rows, n] = x weight^T + what `out` holds (bias in every row, or nothing).
template <class T>
void multiply(const TensorView& x, const TensorView& weight, T beta, Tensor& out) {
  const std::int64_t columns = weight.shape()[0];
  gemm<T>(matrix_of<T>(x), matrix_of<T>(weight).transposed(), beta,
          {out.mutable_view().data_as<T>(), x.shape()[0], columns, columns});
}

}  // namespace

Tensor linear(const TensorView& x, const TensorView& weight, const std::optional<TensorView>& bias) {
  check(x, weight, bias);
  Dims shape = x.shape();
  shape[shape.size() - 1] = weight.shape()[0];
  Tensor out = Tensor::uninitialized(shape, weight.dtype());
  if (out.count() == 0) return out;
  // A product over no columns is zero; a BLAS need not be asked (nor need one agree).
  const bool empty_sum = weight.shape()[1] == 0;
  if (bias)
    copy(bias->expand(shape), out);
  else if (empty_sum)
    out = Tensor(shape, weight.dtype());
  if (empty_sum) return out;

  Tensor x_copy;
  Tensor weight_copy;
  const TensorView left = as_matrix(x, x_copy);
  const TensorView right = as_matrix(weight, weight_copy);
  if (weight.dtype() == DType::f64)
    multiply<double>(left, right, bias ? 1 : 0, out);
  else
    multiply<float>(left, right, bias ? 1 : 0, out);
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
  detail::require_real(weight, "weight");
  detail::require_rank(weight, "weight", 2, "[out, in]");
  if (!bias) return;
  detail::require_dtype(*bias, "bias", weight.dtype(), "weight");
  if (bias->shape() != Dims{weight.size(0)})
    refuse("bias has shape " + to_string(bias->shape()) + "; [" + std::to_string(weight.size(0)) +
           "] is expected for a weight of shape " + to_string(weight.shape()));
}

Tensor Linear::forward(const TensorView& x) const {
  if (!bias) return linear(x, weight);
  return linear(x, weight, bias->view());
}

std::vector<NamedParameter> Linear::parameters() {
  std::vector<NamedParameter> named = {{"weight", &weight}};
  if (bias) named.push_back({"bias", &*bias});
  return named;
}

}  // namespace heed::nn
