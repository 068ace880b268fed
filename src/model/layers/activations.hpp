// Activations of MLPs, by their names in configurations.
#pragma once

#include <optional>
#include <string_view>

#include "heed/tensor.hpp"

namespace heed::detail {

enum class Activation {
  gelu,       ///< x Phi(x), with erf (Hendrycks and Gimpel 2016)
  gelu_tanh,  ///< x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))): gelu_new, gelu_pytorch_tanh
  relu,
  silu,  ///< x / (1 + exp(-x))
};

/// "gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "relu", "silu", "swish"; nothing for others.
[[nodiscard]] std::optional<Activation> activation_named(std::string_view name);

void activate(Activation activation, Tensor& x, int threads);
/// x = bound tanh(x / bound), in place.
void cap(Tensor& x, double bound, int threads);

}  // namespace heed::detail
