// Four floats on any processor: no more than the compiler's baseline (SSE2 on x86-64).
#pragma once

#include "attention/cpu/simd_four.hpp"

namespace heed::detail::HEED_ISA {

inline constexpr int kRegisters = 16;

/// Rounded twice here, after the product and after the sum.
HEED_INLINE Vf mul_add(Vf a, Vf b, Vf c) { return a * b + c; }

HEED_INLINE Vf load_f16(const std::uint16_t* p) {
  Vf x;
  for (int i = 0; i < kLanes; ++i) {
    const std::uint32_t sign = (p[i] & 0x8000u) << 16;
    const std::uint32_t rest = (p[i] & 0x7fffu) << 13;
    float magnitude;
    __builtin_memcpy(&magnitude, &rest, sizeof magnitude);
    magnitude *= 0x1p112f;
    if (rest >= 0x0f800000u) {
      const std::uint32_t special = rest + 0x70000000u;  // infinity, NaN
      __builtin_memcpy(&magnitude, &special, sizeof magnitude);
    }
    x[i] = sign != 0 ? -magnitude : magnitude;
  }
  return x;
}

}  // namespace heed::detail::HEED_ISA

#include "attention/cpu/simd_no_pairs.hpp"
