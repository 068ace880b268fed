// Several tensors as one.
#pragma once

#include <span>

#include "heed/tensor.hpp"

namespace heed::detail {

/// One after another along an axis. They have the same dtype, and but for that axis the same shape.
inline Tensor concatenated(std::span<const TensorView> parts, int axis) {
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
