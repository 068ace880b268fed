// Vectors of four floats on any processor. They need no more than the compiler's baseline (SSE2 on x86-64).
#pragma once

#include "attention/isa/simd_four.hpp"
#include "attention/kernels/shared/halves.hpp"

namespace heed::detail::HEED_VECTORS {

HEED_INLINE Vf load_f16(const std::uint16_t* p) {
  Vf x;
  for (int i = 0; i < kLanes; ++i) x[i] = half_to_float(p[i]);
  return x;
}
/// One f16 in all lanes.
HEED_INLINE Vf splat_f16(const std::uint8_t* p) {
  std::uint16_t bits = 0;
  __builtin_memcpy(&bits, p, sizeof bits);
  return splat(half_to_float(bits));
}
HEED_INLINE void store_f16(std::uint16_t* p, Vf a) {
  for (int i = 0; i < kLanes; ++i) p[i] = to_half(a[i]);
}

}  // namespace heed::detail::HEED_VECTORS
