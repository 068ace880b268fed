// The halves of heads in differential attention.
#pragma once

#include <cstdint>

#include "heed/tensor.hpp"

namespace heed::detail {

/// Heads `half`, half + 2, … of a view [B, 2 H, …].
template <class View>
View heads_of(const View& all, std::int64_t half) {
  Dims shape = all.shape(), strides = all.strides();
  shape[1] /= 2;
  strides[1] *= 2;
  return {all.narrow(1, half, 1).data(), all.dtype(), shape, strides};
}

/// The heads of both in turns, [B, 2 H, …].
inline Tensor joined_heads(const Tensor& first, const Tensor& second) {
  Dims shape = first.shape();
  shape[1] *= 2;
  Tensor both = Tensor::uninitialized(shape, first.dtype());
  copy(first, heads_of(both.mutable_view(), 0));
  copy(second, heads_of(both.mutable_view(), 1));
  return both;
}

}  // namespace heed::detail
