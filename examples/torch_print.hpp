// Tensors as text, the way PyTorch prints them: four digits, one common width, exponents where the values
// span more than a factor of 1000, and only the edges of what has more than 1000 elements. What PyTorch adds
// after the numbers (dtype, grad_fn) is left out.
#pragma once

#include <string>

#include "heed/tensor.hpp"

namespace lesson {

/// "tensor([[ 0.3374, -0.1778],\n        [ 0.5146,  0.9938]])".
[[nodiscard]] std::string torch_text(const heed::TensorView& tensor);

}  // namespace lesson
