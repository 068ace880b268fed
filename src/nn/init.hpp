// PyTorch's initialisation of layer parameters (torch/nn/init.py, torch/nn/modules).
#pragma once

#include "heed/random.hpp"
#include "heed/tensor.hpp"

namespace heed::nn::detail {

/// Linear's weight [out, in]: kaiming_uniform_ with a = sqrt(5), which is U(-1/sqrt(in), 1/sqrt(in)).
void init_linear_weight(Generator& generator, Tensor& weight);
/// Linear's bias [out], for a weight of `in` columns: the same interval.
void init_linear_bias(Generator& generator, Tensor& bias, std::int64_t in);
/// xavier_uniform_: U(-a, a), a = sqrt(6 / (in + out)), for a weight [out, in].
void init_xavier(Generator& generator, Tensor& weight);

}  // namespace heed::nn::detail
