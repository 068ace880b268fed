// The rows of a cache that a call attends as plain tensors: for what reads tensors alone.
#pragma once

#include "attention/call/problem.hpp"

namespace heed::detail {

/// A call with tensors in place of its cache.
struct GatheredCall {
  Tensor key, value;  ///< f32, [B, Hkv, Lk, D]
  Problem problem;
};
GatheredCall with_tensors(const Problem& problem);

}  // namespace heed::detail
