// Eight floats, and dot products of signed bytes, by AVX2.
#pragma once

#include <immintrin.h>

#include <cstdint>

#define HEED_EIGHT

namespace heed::detail::HEED_ISA {

using Eight = __m256;

HEED_INLINE Eight splat_eight(float x) { return _mm256_set1_ps(x); }
HEED_INLINE Eight load_eight(const float* p) { return _mm256_loadu_ps(p); }
HEED_INLINE Eight mul_eight(Eight a, Eight b) { return _mm256_mul_ps(a, b); }
HEED_INLINE Eight mul_add_eight(Eight a, Eight b, Eight c) { return _mm256_fmadd_ps(a, b, c); }
/// The low half of one, and the high half of the other.
HEED_INLINE Eight join_halves(Eight low, Eight high) { return _mm256_blend_ps(low, high, 0xf0); }
HEED_INLINE float sum_of_eight(Eight a) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
/// Four f16 as floats; the first of them in all lanes; a + x b for one x; the second lane.
using FirstFour = __m128;
HEED_INLINE FirstFour first_four(Eight a) { return _mm256_castps256_ps128(a); }
HEED_INLINE FirstFour four_f16(const std::uint8_t* p) {
  return _mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
HEED_INLINE Eight splat_first(FirstFour a) { return _mm256_broadcastss_ps(a); }
HEED_INLINE FirstFour mul_add_four(FirstFour a, float x, FirstFour b) {
  return _mm_fmadd_ps(a, _mm_set1_ps(x), b);
}
HEED_INLINE float second_of(FirstFour a) { return _mm_cvtss_f32(_mm_movehdup_ps(a)); }

#if defined(HEED_BYTE_DOTS)
inline constexpr bool kNeedsByteDots = true;
HEED_INLINE __m256i add_byte_dots(__m256i without_sign, __m256i with_sign, __m256i sums) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(without_sign), "v"(with_sign));
  return sums;
}
#else
inline constexpr bool kNeedsByteDots = false;
HEED_INLINE __m256i add_byte_dots(__m256i without_sign, __m256i with_sign, __m256i sums) {
  const __m256i pairs = _mm256_maddubs_epi16(without_sign, with_sign);
  return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
#endif
/// Lane i is start[i] plus the sum of products 4 i to 4 i + 3 of 32 unsigned bytes, in two halves, with
/// signed ones. kLarge: bytes may exceed 129, and start counts 128 too much of each.
template <bool kLarge>
HEED_INLINE Eight dot_bytes(SixteenBytes low, SixteenBytes high, const std::int8_t* signed_bytes,
                            const std::int32_t* start) {
  const __m256i w = _mm256_set_m128i((__m128i)high, (__m128i)low);
  const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(signed_bytes));
  if constexpr (kLarge && !kNeedsByteDots) {  // sums of two products would saturate
    const __m256i centred = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
    return _mm256_cvtepi32_ps(
        add_byte_dots(_mm256_abs_epi8(centred), _mm256_sign_epi8(x, centred), _mm256_setzero_si256()));
  }
  return _mm256_cvtepi32_ps(add_byte_dots(w, x, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(start))));
}

}  // namespace heed::detail::HEED_ISA
