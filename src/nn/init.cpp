#include "nn/init.hpp"

#include <cmath>

namespace heed::nn::detail {

// The bounds follow PyTorch's own steps, so that they round as PyTorch's do.

void init_linear_weight(Generator& generator, Tensor& weight) {
  const double slope = std::sqrt(5.0);
  const double gain = std::sqrt(2.0 / (1 + slope * slope));
  const double bound = std::sqrt(3.0) * (gain / std::sqrt(static_cast<double>(weight.size(1))));
  uniform_(generator, weight, -bound, bound);
}

void init_linear_bias(Generator& generator, Tensor& bias, std::int64_t in) {
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  uniform_(generator, bias, -bound, bound);
}

void init_xavier(Generator& generator, Tensor& weight) {
  const double deviation = std::sqrt(2.0 / static_cast<double>(weight.size(0) + weight.size(1)));
  const double bound = std::sqrt(3.0) * deviation;
  uniform_(generator, weight, -bound, bound);
}

}  // namespace heed::nn::detail
