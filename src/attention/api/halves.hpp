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

}  // namespace heed::detail
