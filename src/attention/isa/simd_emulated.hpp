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
