// Vectors of sixteen floats, by AVX-512 F, BW, DQ and VL.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace heed::detail::HEED_ISA {

using Vf = __m512;
using Mask = __mmask16;
inline constexpr int kLanes = 16;
inline constexpr int kRegisters = 32;

#define HEED_INLINE __attribute__((always_inline)) inline

HEED_INLINE Vf zero() { return _mm512_setzero_ps(); }
HEED_INLINE Vf splat(float x) { return _mm512_set1_ps(x); }
HEED_INLINE Vf load(const float* p) { return _mm512_loadu_ps(p); }
HEED_INLINE void store(float* p, Vf a) { _mm512_storeu_ps(p, a); }
/// Stores to aligned memory that will not be read soon, bypassing the caches. Call end_stores_past_caches()
/// before other threads read it.
HEED_INLINE void store_past_caches(float* p, Vf a) { _mm512_stream_ps(p, a); }
HEED_INLINE void end_stores_past_caches() { _mm_sfence(); }
HEED_INLINE __mmask16 first_lanes(std::int64_t n) {
  return n >= 16 ? __mmask16(0xffff) : __mmask16((1u << n) - 1);
}
/// Loads the first n floats; the other lanes are 0. Reads no memory beyond them.
HEED_INLINE Vf load_first(const float* p, std::int64_t n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
HEED_INLINE void store_first(float* p, std::int64_t n, Vf a) { _mm512_mask_storeu_ps(p, first_lanes(n), a); }
HEED_INLINE Vf load_bf16(const std::uint16_t* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
HEED_INLINE Vf load_f16(const std::uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
/// One f16 in all lanes.
HEED_INLINE Vf splat_f16(const std::uint8_t* p) {
  std::uint16_t bits = 0;
  __builtin_memcpy(&bits, p, sizeof bits);
  return _mm512_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
}
/// The low halves of kLanes bytes, and the high ones.
HEED_INLINE __m512i widen8(const std::uint8_t* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
HEED_INLINE Vf load_low_halves(const std::uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_and_si512(widen8(p), _mm512_set1_epi32(15)));
}
HEED_INLINE Vf load_high_halves(const std::uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_srli_epi32(widen8(p), 4));
}
/// table[index] for sixteen indices below 16.
using SixteenBytes = std::uint8_t __attribute__((vector_size(16)));
HEED_INLINE SixteenBytes look_up(SixteenBytes table, SixteenBytes indices) {
  return (SixteenBytes)_mm_shuffle_epi8((__m128i)table, (__m128i)indices);
}
/// Sixteen signed bytes, kLanes to a vector.
HEED_INLINE void widen_int8(SixteenBytes bytes, Vf* to) {
  to[0] = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32((__m128i)bytes));
}
// Codes of a cache's rows (kernels/shared/coded_rows.hpp): signed bytes; half bytes, the low one first; e4m3,
// whose shifted bits are an IEEE half, too small by a factor of 2^8.
HEED_INLINE Vf load_int8(const std::uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
HEED_INLINE Vf load_int4(const std::uint8_t* p) {
  std::int32_t low, high;
  __builtin_memcpy(&low, p, sizeof low);
  __builtin_memcpy(&high, p + sizeof low, sizeof high);
  const __m512i shifts = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
  const __m512 numbers = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  // The permutation uses only the low four bits of each index.
  const __m512i both = _mm512_mask_set1_epi32(_mm512_set1_epi32(low), 0xff00, high);
  return _mm512_permutexvar_ps(_mm512_srlv_epi32(both, shifts), numbers);
}
HEED_INLINE Vf load_e4m3(const std::uint8_t* p) {
  const __m256i codes = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i halves = _mm256_and_si256(_mm256_slli_epi16(codes, 7), _mm256_set1_epi16(~0x4000));
  return _mm512_mul_ps(_mm512_cvtph_ps(halves), _mm512_set1_ps(256.0f));
}
/// Rounds to IEEE half, to nearest and ties to even.
HEED_INLINE void store_f16(std::uint16_t* p, Vf a) {
  _mm256_storeu_si256(
      reinterpret_cast<__m256i*>(p),
      _mm512_maskz_cvtps_ph(first_lanes(16), a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
/// Lane i is true if byte i is not 0.
HEED_INLINE Mask load_bytes(const std::uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm_test_epi8_mask(bytes, bytes);
}

HEED_INLINE Vf add(Vf a, Vf b) { return _mm512_add_ps(a, b); }
HEED_INLINE Vf sub(Vf a, Vf b) { return _mm512_sub_ps(a, b); }
HEED_INLINE Vf narrowed_difference(double a, const double* b) {
  const auto half = [&](int i) {
    return _mm512_cvtpd_ps(_mm512_sub_pd(_mm512_set1_pd(a), _mm512_loadu_pd(b + i)));
  };
  return _mm512_insertf32x8(_mm512_castps256_ps512(half(0)), half(8), 1);
}
HEED_INLINE Vf mul(Vf a, Vf b) { return _mm512_mul_ps(a, b); }
HEED_INLINE Vf div(Vf a, Vf b) { return _mm512_div_ps(a, b); }
/// a * b + c, rounded once.
HEED_INLINE Vf mul_add(Vf a, Vf b, Vf c) { return _mm512_fmadd_ps(a, b, c); }
/// If either operand is NaN, the result is b.
HEED_INLINE Vf maximum(Vf a, Vf b) { return _mm512_max_ps(a, b); }
HEED_INLINE Vf minimum(Vf a, Vf b) { return _mm512_min_ps(a, b); }
HEED_INLINE Vf absolute(Vf a) { return _mm512_abs_ps(a); }

HEED_INLINE Mask greater(Vf a, Vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
HEED_INLINE Mask greater_equal(Vf a, Vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
HEED_INLINE Mask both(Mask a, Mask b) { return a & b; }
HEED_INLINE Mask either(Mask a, Mask b) { return a | b; }
HEED_INLINE Mask without(Mask a, Mask b) { return a & static_cast<Mask>(~b); }  ///< a and not b
HEED_INLINE bool any(Mask m) { return m != 0; }
/// Bit i is lane i.
HEED_INLINE std::uint32_t bits_of(Mask m) { return m; }
HEED_INLINE Vf select(Mask m, Vf yes, Vf no) { return _mm512_mask_mov_ps(no, m, yes); }
HEED_INLINE Vf keep(Mask m, Vf a) { return _mm512_maskz_mov_ps(m, a); }

/// Tests eight words at once; bit i is set if words[i] is not 0.
HEED_INLINE std::uint64_t bits_of_nonzero(const std::uint64_t* words) {
  const __m512i eight = _mm512_loadu_si512(words);
  return _mm512_test_epi64_mask(eight, eight);
}

/// a * 2^n, where n is the integer in the low bits of `t` = n + 1.5 * 2^23; n is added to a's exponent.
HEED_INLINE Vf shift_exponent(Vf a, Vf t) {
  const __m512i n = _mm512_slli_epi32(_mm512_castps_si512(t), 23);
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), n));
}
HEED_INLINE Vf shift_exponent_where(Mask m, Vf a, Vf t) {
  const __m512i n = _mm512_slli_epi32(_mm512_castps_si512(t), 23);
  return _mm512_castsi512_ps(_mm512_maskz_add_epi32(m, _mm512_castps_si512(a), n));
}

/// x minus the nearest integer.
HEED_INLINE Vf fraction(Vf x) { return _mm512_reduce_ps(x, 0); }
/// a 2^n for an integer n; in the lanes that are not in `m`, 0.
HEED_INLINE Vf scale_by_power(Vf a, Vf n) { return _mm512_scalef_ps(a, n); }
HEED_INLINE Vf scale_by_power(Mask m, Vf a, Vf n) { return _mm512_maskz_scalef_ps(m, a, n); }

/// The same number, which the compiler keeps in a register and does not load anew.
HEED_INLINE Vf in_register(Vf a) {
  asm("" : "+v"(a));
  return a;
}

/// 0, 1, 2, …
HEED_INLINE Vf lane_numbers() { return _mm512_set_ps(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0); }
/// `first`, followed by the lanes of a except the last.
HEED_INLINE Vf slide_up(Vf a, float first) {
  return _mm512_castsi512_ps(
      _mm512_alignr_epi32(_mm512_castps_si512(a), _mm512_castps_si512(splat(first)), 15));
}
HEED_INLINE float reduce_add(Vf a) { return _mm512_reduce_add_ps(a); }
HEED_INLINE float reduce_max(Vf a) { return _mm512_reduce_max_ps(a); }

/// Transposes 16 rows of 16 floats in registers: row i holds what lane i of every row held.
HEED_INLINE void transpose(Vf (&r)[kLanes]) {
  Vf t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {  // pairs of floats
    t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  Vf u[16];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {  // quadruples
    const auto lo = [&](int a, int b) {
      return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(t[a]), _mm512_castps_pd(t[b])));
    };
    const auto hi = [&](int a, int b) {
      return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(t[a]), _mm512_castps_pd(t[b])));
    };
    u[4 * i] = lo(4 * i, 4 * i + 2);
    u[4 * i + 1] = hi(4 * i, 4 * i + 2);
    u[4 * i + 2] = lo(4 * i + 1, 4 * i + 3);
    u[4 * i + 3] = hi(4 * i + 1, 4 * i + 3);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {  // 128-bit quarters, in two steps
    t[i] = _mm512_shuffle_f32x4(u[i], u[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_f32x4(u[i], u[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_f32x4(u[i + 8], u[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_f32x4(u[i + 8], u[i + 12], 0xdd);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
    r[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

/// Lane i of the result is the sum of the lanes of row i. Vectors are added as soon as two rows share one,
/// which halves the work of a transposition.
HEED_INLINE Vf sum_each(Vf (&r)[kLanes]) {
  Vf pair[8];  // sums of rows 2 i and 2 i + 1
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i)
    pair[i] = add(_mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]), _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]));
  Vf four[4];  // lanes 4 q + j: row 4 i + j, for each quarter q
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512d a = _mm512_castps_pd(pair[2 * i]);
    const __m512d b = _mm512_castps_pd(pair[2 * i + 1]);
    four[i] = add(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
  }
  const auto halves = [](Vf a, Vf b) {
    return add(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  };
  return halves(halves(four[0], four[1]), halves(four[2], four[3]));
}

/// The two bf16 of each lane, as floats.
HEED_INLINE Vf low_halves(Vf pairs) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(pairs), 16));
}
HEED_INLINE Vf high_halves(Vf pairs) {
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(pairs), _mm512_set1_epi32(-65536)));
}
/// The even elements of two vectors, and the odd ones; and back.
inline constexpr bool kSplitsPairs = true;
HEED_INLINE void split_pairs(Vf a, Vf b, Vf& even, Vf& odd) {
  const __m512i evens = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  even = _mm512_permutex2var_ps(a, evens, b);
  odd = _mm512_permutex2var_ps(a, _mm512_add_epi32(evens, _mm512_set1_epi32(1)), b);
}
HEED_INLINE void join_pairs(Vf even, Vf odd, Vf& a, Vf& b) {
  const __m512i first = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  a = _mm512_permutex2var_ps(even, first, odd);
  b = _mm512_permutex2var_ps(even, _mm512_add_epi32(first, _mm512_set1_epi32(8)), odd);
}

#if defined(__AVX512BF16__)
inline constexpr bool kHasBf16Dot = true;
/// c + a.low * b.low + a.high * b.high in each lane; a lane of a and b holds two bf16.
HEED_INLINE Vf dot_bf16(Vf a, Vf b, Vf c) {
  return _mm512_dpbf16_ps(c, (__m512bh)_mm512_castps_si512(a), (__m512bh)_mm512_castps_si512(b));
}
/// Rounds to bf16, to nearest and ties to even, as floats.
HEED_INLINE Vf round_bf16(Vf a) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(a)), 16));
}
/// Rounds likewise and stores. Returns the stored numbers as floats.
HEED_INLINE Vf store_bf16(std::uint16_t* p, Vf a) {
  const __m256i bits = (__m256i)_mm512_cvtneps_pbh(a);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), bits);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
/// Rounds two vectors and stores them contiguously. Returns the stored numbers as pairs.
HEED_INLINE Vf store_bf16(std::uint16_t* p, Vf a, Vf b) {
  const Vf pairs = _mm512_castsi512_ps((__m512i)_mm512_cvtne2ps_pbh(b, a));
  store(reinterpret_cast<float*>(p), pairs);
  return pairs;
}
/// 1 in both halves of each lane; dot_bf16 with it adds up pairs.
HEED_INLINE Vf pairs_of_one() { return _mm512_castsi512_ps(_mm512_set1_epi32(0x3f803f80)); }
/// The high halves of two vectors, as pairs.
HEED_INLINE Vf pair_high_halves(Vf low, Vf high) {
  return _mm512_castsi512_ps(_mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(low), 16),
                                             _mm512_castps_si512(high_halves(high))));
}
/// Rounds two vectors to bf16, to nearest and ties away from 0. Lane i of the result holds lane i of both.
/// NaN stay NaN, except for bits from 0x7fff8000 on, which no arithmetic makes. Integers need
/// fewer operations than VCVTNE2PS2BF16 and a permutation.
HEED_INLINE Vf pair_rounded(Vf low, Vf high) {
  const auto add_half = [](Vf a) {
    return _mm512_add_epi32(_mm512_castps_si512(a), _mm512_set1_epi32(0x8000));
  };
  constexpr int kSecondWhereFirst = 0xca;  // (a & b) | (~a & c)
  return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(
      _mm512_set1_epi32(-65536), add_half(high), _mm512_srli_epi32(add_half(low), 16), kSecondWhereFirst));
}
/// Lane i holds element i of both rows.
HEED_INLINE Vf interleave_bf16(const std::uint16_t* low, const std::uint16_t* high) {
  const auto widen = [](const std::uint16_t* p) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  };
  return _mm512_castsi512_ps(_mm512_or_si512(widen(low), _mm512_slli_epi32(widen(high), 16)));
}

#endif

}  // namespace heed::detail::HEED_ISA

#include "attention/isa/simd_eight_avx2.hpp"
#if !defined(__AVX512BF16__)
#include "attention/isa/simd_no_bf16_dot.hpp"
#endif

namespace heed::detail::HEED_ISA {
HEED_INLINE Eight first_eight(Vf a) { return _mm512_castps512_ps256(a); }
}  // namespace heed::detail::HEED_ISA
