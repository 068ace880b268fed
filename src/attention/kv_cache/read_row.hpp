// Reads one row of a cache, with the values that attention uses, from the plain data that kernels have.
#pragma once

#include <span>

#include "attention/problem/problem.hpp"

namespace heed::detail {

/// A call with tensors in place of its cache, for code that reads only tensors.
struct GatheredCall {
  Tensor key, value;  ///< f32, [B, Hkv, Lk, D]
  Problem problem;
};
GatheredCall with_tensors(const Problem& problem);

/// Reads row j of a sequence and head into `to` [D]. `from` is the call's key or value.
void read_cached_row(const CacheRows& cache, const Operand& from, std::int64_t sequence, bool is_key,
                     std::int64_t head, std::int64_t j, std::span<float> to);

}  // namespace heed::detail
