// What is done to every element, or to every row of the last axis, of contiguous tensors of f32 or f64.
#pragma once

#include "heed/tensor.hpp"

namespace heed::nn::detail {

/// Calls body(float()) or body(double()), after the dtype; which must be one of the two.
template <class Body>
void with_real(DType dtype, Body body) {
  if (dtype == DType::f64)
    body(double{});
  else
    body(float{});
}

/// The view itself where it is contiguous, else `storage`, which becomes a copy that is.
[[nodiscard]] inline TensorView contiguous(const TensorView& x, Tensor& storage) {
  if (x.is_contiguous()) return x;
  storage = Tensor::copy_of(x);
  return storage.view();
}

/// a + b, of one shape and dtype.
[[nodiscard]] Tensor sum(const TensorView& a, const TensorView& b);
/// to += x, of one shape and dtype.
void add(const TensorView& x, Tensor& to);

}  // namespace heed::nn::detail
