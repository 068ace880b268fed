// Concatenation of tensors.
#pragma once

#include "heed/tensor.hpp"

namespace heed::detail {

/// Concatenates a list of tensors or views along an axis. They must have the same dtype, and the same shape
/// except for that axis.
template <class Parts>
Tensor concatenated(const Parts& parts, int axis) {
  Dims shape = parts.front().shape();
  shape[axis] = 0;
  for (const TensorView& part : parts) shape[axis] += part.size(axis);
  Tensor whole = Tensor::uninitialized(shape, parts.front().dtype());
  std::int64_t begin = 0;
  for (const TensorView& part : parts) {
    copy(part, whole.mutable_view().narrow(axis, begin, part.size(axis)));
    begin += part.size(axis);
  }
  return whole;
}

}  // namespace heed::detail
