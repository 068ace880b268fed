#include <cmath>

#include "heed/nn/transformer.hpp"
#include "nn/checks.hpp"
#include "nn/elements.hpp"

namespace heed::nn {
namespace {

Tensor ones(std::int64_t dim, DType dtype) {
  detail::require_size(dim, "dim");
  Tensor tensor({dim}, dtype);
  detail::require_real(tensor, "dtype");
  detail::with_real(dtype, [&]<class T>(T) {
    for (T& value : tensor.values<T>()) value = 1;
  });
  return tensor;
}

Dims without_last(const Dims& shape) {
  Dims leading;
  for (int axis = 0; axis + 1 < shape.size(); ++axis) leading.push_back(shape[axis]);
  return leading;
}

// Normalises one row. Sums are in f64, so that their error does not grow with D.
template <class T>
T normalize(const T* x, std::int64_t dim, double epsilon, T* to) {
  double sum = 0;
  for (std::int64_t i = 0; i < dim; ++i) sum += static_cast<double>(x[i]);
  const double mean = sum / static_cast<double>(dim);
  double squares = 0;
  for (std::int64_t i = 0; i < dim; ++i) {
    const double off = static_cast<double>(x[i]) - mean;
    squares += off * off;
  }
  const double inverse = 1 / std::sqrt(squares / static_cast<double>(dim) + epsilon);
  for (std::int64_t i = 0; i < dim; ++i) to[i] = static_cast<T>((static_cast<double>(x[i]) - mean) * inverse);
  return static_cast<T>(inverse);
}

// With n = normalized and h = grad_output * weight: grad_x = (h - mean(h) - n mean(h n)) / deviation.
template <class T>
void row_backward(const T* grad, const T* normalized, const T* weight, T inverse, std::int64_t dim, T* to) {
  double mean = 0;
  double projection = 0;
  for (std::int64_t i = 0; i < dim; ++i) {
    const double h = static_cast<double>(grad[i]) * static_cast<double>(weight[i]);
    mean += h;
    projection += h * static_cast<double>(normalized[i]);
  }
  mean /= static_cast<double>(dim);
  projection /= static_cast<double>(dim);
  for (std::int64_t i = 0; i < dim; ++i) {
    const double h = static_cast<double>(grad[i]) * static_cast<double>(weight[i]);
    to[i] = static_cast<T>((h - mean - static_cast<double>(normalized[i]) * projection) *
                           static_cast<double>(inverse));
  }
}

}  // namespace

LayerNorm::LayerNorm(std::int64_t dim, DType dtype, double small)
    : weight(ones(dim, dtype)), bias({dim}, dtype), epsilon(small) {
  if (!(epsilon > 0 && std::isfinite(epsilon)))
    detail::refuse("epsilon is ", epsilon, "; a finite number above 0 is expected");
}

LayerNormResult LayerNorm::forward(const TensorView& x) const {
  const std::int64_t dim = weight.size(0);
  detail::require_dtype(x, "x", weight.dtype(), "weight");
  if (x.rank() < 1 || x.shape().back() != dim)
    detail::refuse("x has shape ", x.shape(), "; [..., ", dim, "] is expected");
  detail::require_like(bias, "bias", weight.shape(), weight.dtype());
  Tensor storage;
  const TensorView from = detail::contiguous(x, storage);
  LayerNormResult result{Tensor::uninitialized(x.shape(), x.dtype()),
                         Tensor::uninitialized(x.shape(), x.dtype()),
                         Tensor::uninitialized(without_last(x.shape()), x.dtype())};
  detail::with_real(x.dtype(), [&]<class T>(T) {
    const T* row = from.data_as<T>();
    T* normalized = result.normalized.values<T>().data();
    T* output = result.output.values<T>().data();
    for (T& inverse : result.inverse_deviation.values<T>()) {
      inverse = normalize(row, dim, epsilon, normalized);
      for (std::int64_t i = 0; i < dim; ++i)
        output[i] = normalized[i] * weight.values<T>()[static_cast<std::size_t>(i)] +
                    bias.values<T>()[static_cast<std::size_t>(i)];
      row += dim;
      normalized += dim;
      output += dim;
    }
  });
  return result;
}

Tensor LayerNorm::backward(const TensorView& grad_output, const LayerNormResult& result,
                           LayerNorm& grads) const {
  detail::require_like(grad_output, "grad_output", result.normalized.shape(), weight.dtype());
  detail::require_like(grads.weight, "grads.weight", weight.shape(), weight.dtype());
  detail::require_like(grads.bias, "grads.bias", weight.shape(), weight.dtype());
  const std::int64_t dim = weight.size(0);
  Tensor storage;
  const TensorView from = detail::contiguous(grad_output, storage);
  Tensor grad_x = Tensor::uninitialized(from.shape(), from.dtype());
  detail::with_real(weight.dtype(), [&]<class T>(T) {
    const T* grad = from.data_as<T>();
    const T* normalized = result.normalized.values<T>().data();
    T* to = grad_x.values<T>().data();
    T* grad_weight = grads.weight.values<T>().data();
    T* grad_bias = grads.bias.values<T>().data();
    for (const T inverse : result.inverse_deviation.values<T>()) {
      row_backward(grad, normalized, weight.values<T>().data(), inverse, dim, to);
      for (std::int64_t i = 0; i < dim; ++i) {
        grad_weight[i] += grad[i] * normalized[i];
        grad_bias[i] += grad[i];
      }
      grad += dim;
      normalized += dim;
      to += dim;
    }
  });
  return grad_x;
}

std::vector<NamedParameter> LayerNorm::parameters() { return {{"weight", &weight}, {"bias", &bias}}; }

}  // namespace heed::nn
