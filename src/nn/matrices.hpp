// Tensors as matrices for gemm(), and the three products that a linear map and its backward are made of.
#pragma once

#include "heed/tensor.hpp"

namespace heed::nn::detail {

/// `x` [..., n] as [rows, n] that a BLAS can read: a view of x, or, only where its strides leave no other
/// way, of the copy that `storage` then holds.
[[nodiscard]] TensorView as_matrix(const TensorView& x, Tensor& storage);

/// c [M, N] = a [M, K] b [K, N], with `add` c += a b. c is contiguous; a and b are as_matrix()'s, or such
/// ones with their axes swapped. All of one dtype, f32 or f64.
void multiply(const TensorView& a, const TensorView& b, bool add, const MutableTensorView& c);

/// sums [n] += the rows of x [rows, n], one after the other.
void add_rows(const TensorView& x, const MutableTensorView& sums);

}  // namespace heed::nn::detail
