// Operations on every element, or every row of the last axis, of contiguous f32 or f64 tensors.
#pragma once

#include "heed/tensor.hpp"

namespace heed::nn::detail {

/// Calls body(float()) or body(double()) by the dtype, which must be f32 or f64.
template <class Body>
void with_real(DType dtype, Body body) {
  if (dtype == DType::f64)
    body(double{});
  else
    body(float{});
}

/// Returns the view itself if it is contiguous, else a copy in `storage`.
[[nodiscard]] inline TensorView contiguous(const TensorView& x, Tensor& storage) {
  if (x.is_contiguous()) return x;
  storage = Tensor::copy_of(x);
  return storage.view();
}

[[nodiscard]] Tensor sum(const TensorView& a, const TensorView& b);
/// to += x, both of the same shape and dtype.
void add(const TensorView& x, Tensor& to);

}  // namespace heed::nn::detail
