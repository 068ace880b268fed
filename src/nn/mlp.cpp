#include <cmath>
#include <numbers>

#include "heed/nn/transformer.hpp"
#include "nn/attention_layer.hpp"
#include "nn/checks.hpp"
#include "nn/elements.hpp"

namespace heed::nn {
namespace {

// Phi(x), by erfc, because 1 + erf would cancel.
template <class T>
T normal_distribution(T x) {
  return std::erfc(-x * (std::numbers::sqrt2_v<T> / 2)) / 2;
}

template <class T>
T normal_density(T x) {
  constexpr T kFactor = std::numbers::inv_sqrtpi_v<T> * std::numbers::sqrt2_v<T> / 2;  // 1 / sqrt(2 pi)
  return kFactor * std::exp(-x * x / 2);
}

}  // namespace

Tensor gelu(const TensorView& x) {
  detail::require_real(x, "x");
  Tensor result = Tensor::copy_of(x);
  detail::with_real(x.dtype(), [&]<class T>(T) {
    for (T& value : result.values<T>()) value *= normal_distribution(value);
  });
  return result;
}

Tensor gelu_backward(const TensorView& grad_output, const TensorView& x) {
  detail::require_real(x, "x");
  detail::require_like(grad_output, "grad_output", x.shape(), x.dtype());
  Tensor storage;
  const TensorView from = detail::contiguous(x, storage);
  Tensor result = Tensor::copy_of(grad_output);
  detail::with_real(x.dtype(), [&]<class T>(T) {
    const T* at = from.data_as<T>();
    for (T& value : result.values<T>()) {
      value *= normal_distribution(*at) + *at * normal_density(*at);
      ++at;
    }
  });
  return result;
}

Mlp::Mlp(std::int64_t dim, std::int64_t hidden, Generator& generator, DType dtype)
    : up(dim, hidden, true, generator, dtype), down(hidden, dim, true, generator, dtype) {}

MlpResult Mlp::forward(const TensorView& x) const {
  MlpResult result;
  result.hidden = up.forward(x);
  result.activated = gelu(result.hidden);
  result.output = down.forward(result.activated);
  return result;
}

Tensor Mlp::backward(const TensorView& grad_output, const TensorView& x, const MlpResult& result,
                     Mlp& grads) const {
  const Tensor grad_activated = down.backward(grad_output, result.activated, grads.down);
  return up.backward(gelu_backward(grad_activated, result.hidden), x, grads.up);
}

std::vector<NamedParameter> Mlp::parameters() {
  std::vector<NamedParameter> all;
  detail::append_parameters(all, "up", up);
  detail::append_parameters(all, "down", down);
  return all;
}

}  // namespace heed::nn
