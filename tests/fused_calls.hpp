// Sizes of random calls that reach every path of the fused kernels.
#pragma once

#include "random_call.hpp"

namespace heed::test {

inline CallLimits small_calls() {
  CallLimits limits;
  limits.dtypes = {DType::f32, DType::f32, DType::f16, DType::bf16};
  return limits;
}

/// Sizes around those of the tiles: 4 and 12 rows, panels of 12, 24 and 48 keys, chunks of 192.
inline CallLimits tile_calls() {
  CallLimits limits = small_calls();
  limits.batches = {1, 1, 2};
  limits.kv_heads = {1, 1, 2};
  limits.lengths = {1, 3, 11, 12, 13, 24, 25, 47, 48, 49, 95, 97, 128, 191, 192, 193, 200};
  limits.dims = {1, 3, 15, 16, 17, 24, 28, 31, 48, 59, 64, 80, 111};
  return limits;
}

/// Few rows against many keys, whole vectors wide: the kernel then reads keys and values in place.
inline CallLimits decoding_calls() {
  CallLimits limits = small_calls();
  limits.groups = {1, 2, 4};
  limits.batches = {1, 1, 2};
  limits.kv_heads = {1, 1, 2};
  limits.lengths = {1, 1, 2, 3, 5, 49, 100};
  limits.dims = {16, 32, 64, 80};
  return limits;
}

}  // namespace heed::test
