// Vectors of sixteen floats in plain C++, bit for bit with the results of AVX-512's instructions. The
// emulated matrix tiles use them.
#pragma once

#define HEED_VECTORS HEED_ISA::four
#include "attention/isa/simd_four_plain.hpp"

namespace heed::detail::HEED_VECTORS {

/// a * b + c, rounded once.
HEED_INLINE Vf mul_add(Vf a, Vf b, Vf c) {
  for (int i = 0; i < kLanes; ++i) a[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return a;
}

}  // namespace heed::detail::HEED_VECTORS

#include "attention/isa/simd_wide.hpp"

namespace heed::detail::HEED_ISA {

/// The elements of two vectors by turns.
inline void join_pairs(Vf even, Vf odd, Vf& a, Vf& b) {
  float from[2][kLanes], to[2 * kLanes];
  store(from[0], even);
  store(from[1], odd);
  for (int i = 0; i < 2 * kLanes; ++i) to[i] = from[i % 2][i / 2];
  a = load(to);
  b = load(to + kLanes);
}

}  // namespace heed::detail::HEED_ISA
