// Vectors of eight floats, by AVX2 and FMA.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace heed::detail::HEED_ISA {

using Vf = __m256;
using Mask = __m256;  // all bits of a lane set, or none
inline constexpr int kLanes = 8;
inline constexpr int kRegisters = 16;

#define HEED_INLINE __attribute__((always_inline)) inline

HEED_INLINE Vf zero() { return _mm256_setzero_ps(); }
HEED_INLINE Vf splat(float x) { return _mm256_set1_ps(x); }
HEED_INLINE Vf load(const float* p) { return _mm256_loadu_ps(p); }
HEED_INLINE void store(float* p, Vf a) { _mm256_storeu_ps(p, a); }
/// Stores to aligned memory that will not be read soon, bypassing the caches. Call end_stores_past_caches()
/// before other threads read it.
HEED_INLINE void store_past_caches(float* p, Vf a) { _mm256_stream_ps(p, a); }
HEED_INLINE void end_stores_past_caches() { _mm_sfence(); }
HEED_INLINE __m256i first_lanes(std::int64_t n) {
  const __m256i lane = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n < kLanes ? n : kLanes)), lane);
}
HEED_INLINE Vf load_first(const float* p, std::int64_t n) { return _mm256_maskload_ps(p, first_lanes(n)); }
HEED_INLINE void store_first(float* p, std::int64_t n, Vf a) { _mm256_maskstore_ps(p, first_lanes(n), a); }
HEED_INLINE __m256i widen16(const std::uint16_t* p) {
  return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
HEED_INLINE Vf load_bf16(const std::uint16_t* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(widen16(p), 16));
}
/// The two bf16 of each lane, as floats.
HEED_INLINE Vf low_halves(Vf pairs) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(pairs), 16));
}
HEED_INLINE Vf high_halves(Vf pairs) {
  return _mm256_and_ps(pairs, _mm256_castsi256_ps(_mm256_set1_epi32(-65536)));
}
/// The even elements of two vectors, and the odd ones; and back.
inline constexpr bool kSplitsPairs = true;
HEED_INLINE Vf reorder_quarters(Vf x) {
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(x), 0xd8));
}
HEED_INLINE void split_pairs(Vf a, Vf b, Vf& even, Vf& odd) {
  even = reorder_quarters(_mm256_shuffle_ps(a, b, 0x88));
  odd = reorder_quarters(_mm256_shuffle_ps(a, b, 0xdd));
}
HEED_INLINE void join_pairs(Vf even, Vf odd, Vf& a, Vf& b) {
  const Vf low = _mm256_unpacklo_ps(even, odd), high = _mm256_unpackhi_ps(even, odd);
  a = _mm256_permute2f128_ps(low, high, 0x20);
  b = _mm256_permute2f128_ps(low, high, 0x31);
}
HEED_INLINE Vf load_f16(const std::uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
/// One f16 in all lanes.
HEED_INLINE Vf splat_f16(const std::uint8_t* p) {
  std::uint16_t bits = 0;
  __builtin_memcpy(&bits, p, sizeof bits);
  return _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
}
/// The low halves of kLanes bytes, and the high ones.
HEED_INLINE __m256i widen8(const std::uint8_t* p) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
HEED_INLINE Vf load_low_halves(const std::uint8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_and_si256(widen8(p), _mm256_set1_epi32(15)));
}
HEED_INLINE Vf load_high_halves(const std::uint8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_srli_epi32(widen8(p), 4));
}
/// table[index] for sixteen indices below 16.
using SixteenBytes = std::uint8_t __attribute__((vector_size(16)));
HEED_INLINE SixteenBytes look_up(SixteenBytes table, SixteenBytes indices) {
  return (SixteenBytes)_mm_shuffle_epi8((__m128i)table, (__m128i)indices);
}
/// Sixteen signed bytes, kLanes to a vector.
HEED_INLINE void widen_int8(SixteenBytes bytes, Vf* to) {
  const __m128i low = (__m128i)bytes;
  to[0] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(low));
  to[1] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(low, low)));
}
// Codes of a cache's rows (kernels/shared/coded_rows.hpp): signed bytes; half bytes, the low one first; e4m3,
// whose shifted bits are an IEEE half, too small by a factor of 2^8.
HEED_INLINE Vf load_int8(const std::uint8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
HEED_INLINE Vf load_int4(const std::uint8_t* p) {
  std::int32_t bits = 0;
  __builtin_memcpy(&bits, p, sizeof bits);
  const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
  return _mm256_cvtepi32_ps(
      _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(bits), shifts), _mm256_set1_epi32(15)));
}
HEED_INLINE Vf load_e4m3(const std::uint8_t* p) {
  const __m128i codes = _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m128i halves = _mm_and_si128(_mm_slli_epi16(codes, 7), _mm_set1_epi16(~0x4000));
  return _mm256_mul_ps(_mm256_cvtph_ps(halves), _mm256_set1_ps(256.0f));
}
/// Rounds to IEEE half, to nearest and ties to even.
HEED_INLINE void store_f16(std::uint16_t* p, Vf a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
HEED_INLINE Mask load_bytes(const std::uint8_t* p) {
  const __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_cmpgt_epi32(wide, _mm256_setzero_si256()));
}

HEED_INLINE Vf add(Vf a, Vf b) { return _mm256_add_ps(a, b); }
HEED_INLINE Vf sub(Vf a, Vf b) { return _mm256_sub_ps(a, b); }
/// a - b[lane], formed in f64 and rounded.
HEED_INLINE Vf narrowed_difference(double a, const double* b) {
  const auto half = [&](int i) {
    return _mm256_cvtpd_ps(_mm256_sub_pd(_mm256_set1_pd(a), _mm256_loadu_pd(b + i)));
  };
  return _mm256_set_m128(half(4), half(0));
}
HEED_INLINE Vf mul(Vf a, Vf b) { return _mm256_mul_ps(a, b); }
HEED_INLINE Vf div(Vf a, Vf b) { return _mm256_div_ps(a, b); }
HEED_INLINE Vf mul_add(Vf a, Vf b, Vf c) { return _mm256_fmadd_ps(a, b, c); }
HEED_INLINE Vf maximum(Vf a, Vf b) { return _mm256_max_ps(a, b); }
HEED_INLINE Vf minimum(Vf a, Vf b) { return _mm256_min_ps(a, b); }
HEED_INLINE Vf absolute(Vf a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }

HEED_INLINE Mask greater(Vf a, Vf b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
HEED_INLINE Mask greater_equal(Vf a, Vf b) { return _mm256_cmp_ps(a, b, _CMP_GE_OQ); }
HEED_INLINE Mask both(Mask a, Mask b) { return _mm256_and_ps(a, b); }
HEED_INLINE Mask either(Mask a, Mask b) { return _mm256_or_ps(a, b); }
HEED_INLINE Mask without(Mask a, Mask b) { return _mm256_andnot_ps(b, a); }
HEED_INLINE std::uint32_t bits_of(Mask m) { return static_cast<std::uint32_t>(_mm256_movemask_ps(m)); }
HEED_INLINE bool any(Mask m) { return _mm256_movemask_ps(m) != 0; }
HEED_INLINE Vf select(Mask m, Vf yes, Vf no) { return _mm256_blendv_ps(no, yes, m); }
HEED_INLINE Vf keep(Mask m, Vf a) { return _mm256_and_ps(m, a); }

HEED_INLINE std::uint64_t bits_of_nonzero(const std::uint64_t* words) {
  const auto none = [&](int i) {
    const __m256i four = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words + i));
    return _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpeq_epi64(four, _mm256_setzero_si256())));
  };
  return static_cast<std::uint64_t>((none(0) | none(4) << 4) ^ 0xff);
}

HEED_INLINE Vf shift_exponent(Vf a, Vf t) {
  const __m256i n = _mm256_slli_epi32(_mm256_castps_si256(t), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), n));
}
HEED_INLINE Vf shift_exponent_where(Mask m, Vf a, Vf t) { return keep(m, shift_exponent(a, t)); }

HEED_INLINE Vf lane_numbers() { return _mm256_set_ps(7, 6, 5, 4, 3, 2, 1, 0); }
HEED_INLINE Vf slide_up(Vf a, float first) {
  return _mm256_blend_ps(_mm256_permutevar8x32_ps(a, _mm256_set_epi32(6, 5, 4, 3, 2, 1, 0, 0)), splat(first),
                         1);
}
HEED_INLINE float reduce_add(Vf a) {
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
HEED_INLINE float reduce_max(Vf a) {
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

HEED_INLINE void transpose(Vf (&r)[kLanes]) {
  Vf t[8], u[8];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    u[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
    u[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
    u[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
    u[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
  }
}

/// Lane i of the result is the sum of the lanes of row i.
HEED_INLINE Vf sum_each(Vf (&r)[kLanes]) {
  transpose(r);
  Vf sum = r[0];
  for (int i = 1; i < kLanes; ++i) sum = add(sum, r[i]);
  return sum;
}

}  // namespace heed::detail::HEED_ISA

#include "attention/isa/simd_eight_avx2.hpp"
#include "attention/isa/simd_no_bf16_dot.hpp"

namespace heed::detail::HEED_ISA {
HEED_INLINE Eight first_eight(Vf a) { return a; }
}  // namespace heed::detail::HEED_ISA
