// Tensors as text, printed as PyTorch prints them: four digits and one common width. Values that span more
// than a factor of 1000 are written with exponents. Tensors of more than 1000 elements show only their edges.
// PyTorch's suffixes (dtype, grad_fn) are left out.
#pragma once

#include <string>

#include "heed/tensor.hpp"

namespace lesson {

/// "tensor([[ 0.3374, -0.1778],\n        [ 0.5146,  0.9938]])".
[[nodiscard]] std::string torch_text(const heed::TensorView& tensor);

}  // namespace lesson
