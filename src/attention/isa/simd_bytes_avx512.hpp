// Vectors of 64 bytes and their dot products (VNNI, VBMI), for the sums of integers in
// kernels/decode/digits.hpp. A lane is a quad of bytes.
#pragma once

// Marks functions for processors that have these instructions; the unit also runs on others.
#define HEED_BYTE_DOTS __attribute__((target("avx512vnni,avx512vbmi")))

#include "attention/isa/simd_avx512.hpp"

namespace heed::detail::HEED_ISA {

using Quads = __m512i;

/// Adds to each lane the sum of its four products, unsigned bytes times signed ones. (From the intrinsic, GCC
/// 12 spills the sums.)
HEED_BYTE_DOTS HEED_INLINE Quads dot_bytes(Quads without_sign, Quads with_sign, Quads sums) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(without_sign), "v"(with_sign));
  return sums;
}
HEED_INLINE Quads zero_quads() { return _mm512_setzero_si512(); }
HEED_INLINE Quads splat_byte(std::uint8_t x) { return _mm512_set1_epi8(static_cast<char>(x)); }
HEED_INLINE Quads load_quads(const std::uint8_t* p) { return _mm512_loadu_si512(p); }
HEED_INLINE void store_quads(std::uint8_t* p, Quads a) { _mm512_storeu_si512(p, a); }
/// One quad in all lanes; four quads in all quarters of the lanes.
HEED_INLINE Quads splat_quad(const std::uint8_t* p) {
  std::int32_t quad = 0;
  __builtin_memcpy(&quad, p, sizeof quad);
  return _mm512_set1_epi32(quad);
}
HEED_INLINE Quads splat_four_quads(const std::uint8_t* p) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
/// Sixteen bytes of each of four rows, one after the other.
HEED_INLINE Quads four_rows(const std::uint8_t* const* rows, std::int64_t at) {
  const auto piece = [&](int i) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[i] + at)); };
  Quads a = _mm512_castsi128_si512(piece(0));
  a = _mm512_inserti32x4(a, piece(1), 1);
  a = _mm512_inserti32x4(a, piece(2), 2);
  return _mm512_inserti32x4(a, piece(3), 3);
}
/// The same bytes column by column: lane c is byte c of the four rows.
HEED_BYTE_DOTS HEED_INLINE Quads columns_of_four_rows(const std::uint8_t* const* rows, std::int64_t at) {
  alignas(64) static constexpr std::uint8_t kColumns[64] = {
      0,  16, 32, 48, 1,  17, 33, 49, 2,  18, 34, 50, 3,  19, 35, 51, 4,  20, 36, 52, 5,  21,
      37, 53, 6,  22, 38, 54, 7,  23, 39, 55, 8,  24, 40, 56, 9,  25, 41, 57, 10, 26, 42, 58,
      11, 27, 43, 59, 12, 28, 44, 60, 13, 29, 45, 61, 14, 30, 46, 62, 15, 31, 47, 63};
  return _mm512_permutexvar_epi8(load_quads(kColumns), four_rows(rows, at));
}
/// c + 128 for signed bytes c.
HEED_INLINE Quads flip_signs(Quads a) { return _mm512_xor_si512(a, splat_byte(0x80)); }
/// 2 c for the low half c of each byte, and for the high half.
HEED_INLINE Quads doubled_low_halves(Quads a) {
  return _mm512_and_si512(_mm512_slli_epi16(a, 1), splat_byte(0x1e));
}
HEED_INLINE Quads doubled_high_halves(Quads a) {
  return _mm512_and_si512(_mm512_srli_epi16(a, 3), splat_byte(0x1e));
}
/// 16 (c - 7.5) for the low half c of each byte, as signed bytes; and for the high half. (0x6a: (A & B) ^ C.)
HEED_INLINE Quads centred_high_halves(Quads a) {
  return _mm512_ternarylogic_epi32(a, splat_byte(0xf0), splat_byte(0x88), 0x6a);
}
HEED_INLINE Quads centred_low_halves(Quads a) { return centred_high_halves(_mm512_slli_epi16(a, 4)); }

/// The lanes as whole numbers; their product with a number.
HEED_INLINE Vf floats_of(Quads sums) { return _mm512_cvtepi32_ps(sums); }
HEED_INLINE Quads times_whole(Quads a, int number) {
  return _mm512_mullo_epi32(a, _mm512_set1_epi32(number));
}
HEED_INLINE Quads sub_bytes(Quads a, Quads b) { return _mm512_sub_epi8(a, b); }
HEED_INLINE Quads splat_whole(int x) { return _mm512_set1_epi32(x); }
HEED_INLINE Quads bits_of_floats(Vf a) { return _mm512_castps_si512(a); }
/// Lane 4 i + j becomes lane 4 j + i.
HEED_INLINE Quads transpose_lanes(Quads a) {
  return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), a);
}
HEED_INLINE Vf transpose_lanes(Vf a) { return _mm512_castsi512_ps(transpose_lanes(_mm512_castps_si512(a))); }
/// For four words at a time, their lowest bytes, followed by the next ones, …
HEED_INLINE Quads bytes_of_words(Quads words) {
  return _mm512_shuffle_epi8(
      words, _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)));
}
/// Four floats, each in four neighbouring lanes.
HEED_INLINE Vf each_four_times(const float* p) {
  const __m512 four = _mm512_broadcast_f32x4(_mm_loadu_ps(p));
  return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3), four);
}
/// Lane 4 i + j is the sum of lanes 4 i to 4 i + 3 of r[j].
HEED_INLINE Vf sum_quarters_of_each(const Vf (&r)[4]) {
  const auto pair = [](Vf a, Vf b) { return add(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)); };
  const __m512d a = _mm512_castps_pd(pair(r[0], r[1])), b = _mm512_castps_pd(pair(r[2], r[3]));
  return add(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
}

/// The larger magnitude of each lane; NaN counts as larger than any number.
HEED_INLINE Vf larger_magnitude(Vf most, Vf a) {
  return _mm512_castsi512_ps(_mm512_max_epi32(_mm512_castps_si512(most), _mm512_castps_si512(absolute(a))));
}
HEED_INLINE float largest_magnitude(Vf most) {
  const int bits = _mm512_reduce_max_epi32(_mm512_castps_si512(most));
  float magnitude = 0;
  __builtin_memcpy(&magnitude, &bits, sizeof bits);
  return magnitude;
}
/// Lane i becomes the larger magnitude, or the sum, of the lanes j = i modulo 4.
HEED_INLINE Vf largest_of_quarters(Vf a) {
  a = larger_magnitude(a, _mm512_shuffle_f32x4(a, a, 0x4e));
  return larger_magnitude(a, _mm512_shuffle_f32x4(a, a, 0xb1));
}
HEED_INLINE Vf sum_of_quarters(Vf a) {
  a = add(a, _mm512_shuffle_f32x4(a, a, 0x4e));
  return add(a, _mm512_shuffle_f32x4(a, a, 0xb1));
}

}  // namespace heed::detail::HEED_ISA
