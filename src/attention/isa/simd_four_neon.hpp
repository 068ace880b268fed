// Vectors of four floats, by AArch64's NEON.
#pragma once

#include <arm_neon.h>

#include "attention/isa/simd_four.hpp"

namespace heed::detail::HEED_VECTORS {

HEED_INLINE Vf mul_add(Vf a, Vf b, Vf c) {
  return vfmaq_f32(reinterpret_cast<float32x4_t>(c), reinterpret_cast<float32x4_t>(a),
                   reinterpret_cast<float32x4_t>(b));
}
HEED_INLINE Vf load_f16(const std::uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
/// One f16 in all lanes.
HEED_INLINE Vf splat_f16(const std::uint8_t* p) {
  std::uint16_t bits = 0;
  __builtin_memcpy(&bits, p, sizeof bits);
  return vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(bits)));
}
HEED_INLINE void store_f16(std::uint16_t* p, Vf a) {
  vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(reinterpret_cast<float32x4_t>(a))));
}

}  // namespace heed::detail::HEED_VECTORS
