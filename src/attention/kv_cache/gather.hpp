// Copies the cache rows that a call attends into plain tensors, for code that reads only tensors.
#pragma once

#include "attention/problem/problem.hpp"

namespace heed::detail {

/// A call with tensors in place of its cache.
struct GatheredCall {
  Tensor key, value;  ///< f32, [B, Hkv, Lk, D]
  Problem problem;
};
GatheredCall with_tensors(const Problem& problem);

}  // namespace heed::detail
