// Tensors as matrices for gemm(), and the products of a linear map and its backward pass.
#pragma once

#include "heed/tensor.hpp"

namespace heed::nn::detail {

/// `x` [..., n] as [rows, n] for a BLAS: a view of x, or a view of a copy in `storage` if its strides require
/// one.
[[nodiscard]] TensorView as_matrix(const TensorView& x, Tensor& storage);

/// c [M, N] = a [M, K] b [K, N], or with `add` c += a b. c is contiguous. a and b come from as_matrix(),
/// possibly with swapped axes. All have the same dtype, f32 or f64.
void multiply(const TensorView& a, const TensorView& b, bool add, const MutableTensorView& c);

/// sums [n] += the rows of x [rows, n], in their order.
void add_rows(const TensorView& x, const MutableTensorView& sums);

}  // namespace heed::nn::detail
