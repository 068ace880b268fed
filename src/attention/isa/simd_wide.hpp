// Vectors of sixteen floats as four vectors of four, for matrix tiles, whose rows have sixteen floats. If
// four::mul_add rounds once, the results are bit for bit the same as with simd_avx512.hpp. `four` is a
// namespace inside the unit's; it holds the vectors of simd_four.hpp.
#pragma once

#include <cstdint>

#include "attention/kernels/shared/halves.hpp"

namespace heed::detail::HEED_ISA {

struct Vf {
  four::Vf q[4];
};
struct Mask {
  four::Mask q[4];
};
inline constexpr int kLanes = 16;
inline constexpr int kRegisters = 32;

HEED_INLINE Vf zero() {
  Vf a;
  for (int i = 0; i < 4; ++i) a.q[i] = four::zero();
  return a;
}
HEED_INLINE Vf splat(float x) {
  Vf a;
  for (int i = 0; i < 4; ++i) a.q[i] = four::splat(x);
  return a;
}
HEED_INLINE Vf load(const float* p) {
  Vf a;
  for (int i = 0; i < 4; ++i) a.q[i] = four::load(p + 4 * i);
  return a;
}
HEED_INLINE void store(float* p, Vf a) {
  for (int i = 0; i < 4; ++i) four::store(p + 4 * i, a.q[i]);
}
HEED_INLINE void store_past_caches(float* p, Vf a) { store(p, a); }
HEED_INLINE void end_stores_past_caches() {}
HEED_INLINE Vf load_first(const float* p, std::int64_t n) {
  Vf a;
  for (int i = 0; i < 4; ++i) a.q[i] = four::load_first(p + 4 * i, n - 4 * i);
  return a;
}
HEED_INLINE void store_first(float* p, std::int64_t n, Vf a) {
  for (int i = 0; i < 4; ++i) four::store_first(p + 4 * i, n - 4 * i, a.q[i]);
}
HEED_INLINE Vf load_bf16(const std::uint16_t* p) {
  Vf a;
  for (int i = 0; i < 4; ++i) a.q[i] = four::load_bf16(p + 4 * i);
  return a;
}
HEED_INLINE Vf load_f16(const std::uint16_t* p) {
  Vf a;
  for (int i = 0; i < 4; ++i) a.q[i] = four::load_f16(p + 4 * i);
  return a;
}
using four::look_up;
using four::SixteenBytes;
HEED_INLINE void widen_int8(SixteenBytes bytes, Vf* to) { four::widen_int8(bytes, to->q); }
HEED_INLINE Vf load_low_halves(const std::uint8_t* p) {
  Vf a;
  for (int i = 0; i < 4; ++i) a.q[i] = four::load_low_halves(p + 4 * i);
  return a;
}
HEED_INLINE Vf load_high_halves(const std::uint8_t* p) {
  Vf a;
  for (int i = 0; i < 4; ++i) a.q[i] = four::load_high_halves(p + 4 * i);
  return a;
}
HEED_INLINE Vf splat_f16(const std::uint8_t* p) {
  Vf a;
  for (int i = 0; i < 4; ++i) a.q[i] = four::splat_f16(p);
  return a;
}
HEED_INLINE Vf load_int8(const std::uint8_t* p) {
  Vf a;
  for (int i = 0; i < 4; ++i) a.q[i] = four::load_int8(p + 4 * i);
  return a;
}
HEED_INLINE Vf load_int4(const std::uint8_t* p) {
  Vf a;
  for (int i = 0; i < 4; ++i) a.q[i] = four::load_int4(p + 2 * i);
  return a;
}
HEED_INLINE Vf load_e4m3(const std::uint8_t* p) {
  Vf a;
  for (int i = 0; i < 4; ++i) a.q[i] = four::load_e4m3(p + 4 * i);
  return a;
}
HEED_INLINE void store_f16(std::uint16_t* p, Vf a) {
  for (int i = 0; i < 4; ++i) four::store_f16(p + 4 * i, a.q[i]);
}
HEED_INLINE Mask load_bytes(const std::uint8_t* p) {
  Mask m;
  for (int i = 0; i < 4; ++i) m.q[i] = four::load_bytes(p + 4 * i);
  return m;
}

HEED_INLINE Vf add(Vf a, Vf b) {
  for (int i = 0; i < 4; ++i) a.q[i] = four::add(a.q[i], b.q[i]);
  return a;
}
HEED_INLINE Vf sub(Vf a, Vf b) {
  for (int i = 0; i < 4; ++i) a.q[i] = four::sub(a.q[i], b.q[i]);
  return a;
}
HEED_INLINE Vf narrowed_difference(double a, const double* b) {
  Vf x;
  for (int i = 0; i < 4; ++i) x.q[i] = four::narrowed_difference(a, b + 4 * i);
  return x;
}
HEED_INLINE Vf mul(Vf a, Vf b) {
  for (int i = 0; i < 4; ++i) a.q[i] = four::mul(a.q[i], b.q[i]);
  return a;
}
HEED_INLINE Vf div(Vf a, Vf b) {
  for (int i = 0; i < 4; ++i) a.q[i] = four::div(a.q[i], b.q[i]);
  return a;
}
HEED_INLINE Vf mul_add(Vf a, Vf b, Vf c) {
  for (int i = 0; i < 4; ++i) a.q[i] = four::mul_add(a.q[i], b.q[i], c.q[i]);
  return a;
}
HEED_INLINE Vf maximum(Vf a, Vf b) {
  for (int i = 0; i < 4; ++i) a.q[i] = four::maximum(a.q[i], b.q[i]);
  return a;
}
HEED_INLINE Vf minimum(Vf a, Vf b) {
  for (int i = 0; i < 4; ++i) a.q[i] = four::minimum(a.q[i], b.q[i]);
  return a;
}
HEED_INLINE Vf absolute(Vf a) {
  for (int i = 0; i < 4; ++i) a.q[i] = four::absolute(a.q[i]);
  return a;
}

HEED_INLINE Mask greater(Vf a, Vf b) {
  Mask to;
  for (int i = 0; i < 4; ++i) to.q[i] = four::greater(a.q[i], b.q[i]);
  return to;
}
HEED_INLINE Mask greater_equal(Vf a, Vf b) {
  Mask to;
  for (int i = 0; i < 4; ++i) to.q[i] = four::greater_equal(a.q[i], b.q[i]);
  return to;
}
HEED_INLINE Mask both(Mask a, Mask b) {
  for (int i = 0; i < 4; ++i) a.q[i] = four::both(a.q[i], b.q[i]);
  return a;
}
HEED_INLINE Mask either(Mask a, Mask b) {
  for (int i = 0; i < 4; ++i) a.q[i] = four::either(a.q[i], b.q[i]);
  return a;
}
HEED_INLINE Mask without(Mask a, Mask b) {
  for (int i = 0; i < 4; ++i) a.q[i] = four::without(a.q[i], b.q[i]);
  return a;
}
HEED_INLINE std::uint32_t bits_of(Mask m) {
  std::uint32_t bits = 0;
  for (int i = 0; i < 4; ++i) bits |= four::bits_of(m.q[i]) << 4 * i;
  return bits;
}
HEED_INLINE bool any(Mask m) {
  return four::any(four::either(four::either(m.q[0], m.q[1]), four::either(m.q[2], m.q[3])));
}
HEED_INLINE Vf keep(Mask m, Vf a) {
  for (int i = 0; i < 4; ++i) a.q[i] = four::keep(m.q[i], a.q[i]);
  return a;
}
HEED_INLINE Vf select(Mask m, Vf yes, Vf no) {
  for (int i = 0; i < 4; ++i) yes.q[i] = four::select(m.q[i], yes.q[i], no.q[i]);
  return yes;
}

using four::bits_of_nonzero;

HEED_INLINE Vf shift_exponent(Vf a, Vf t) {
  for (int i = 0; i < 4; ++i) a.q[i] = four::shift_exponent(a.q[i], t.q[i]);
  return a;
}
HEED_INLINE Vf shift_exponent_where(Mask m, Vf a, Vf t) {
  for (int i = 0; i < 4; ++i) a.q[i] = four::shift_exponent_where(m.q[i], a.q[i], t.q[i]);
  return a;
}

HEED_INLINE Vf lane_numbers() {
  Vf a;
  for (int i = 0; i < 4; ++i)
    a.q[i] = four::add(four::lane_numbers(), four::splat(4.0f * static_cast<float>(i)));
  return a;
}
HEED_INLINE Vf slide_up(Vf a, float first) {
  Vf to;
  for (int i = 0; i < 4; ++i) {
    to.q[i] = four::slide_up(a.q[i], first);
    first = a.q[i][3];
  }
  return to;
}
HEED_INLINE float reduce_add(Vf a) {
  return four::reduce_add(four::add(four::add(a.q[0], a.q[2]), four::add(a.q[1], a.q[3])));
}
HEED_INLINE float reduce_max(Vf a) {
  return four::reduce_max(four::maximum(four::maximum(a.q[0], a.q[1]), four::maximum(a.q[2], a.q[3])));
}

/// Transposes quarter `quarter` of rows [first, first + 4).
HEED_INLINE void transpose_quarter(const Vf (&r)[kLanes], int first, int quarter, four::Vf (&to)[4]) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) to[i] = r[first + i].q[quarter];
  four::transpose(to);
}
HEED_INLINE void transpose(Vf (&r)[kLanes]) {
  Vf t[kLanes];
#pragma GCC unroll 4
  for (int row = 0; row < 4; ++row)
#pragma GCC unroll 4
    for (int column = 0; column < 4; ++column) {
      four::Vf block[4];
      transpose_quarter(r, 4 * row, column, block);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) t[4 * column + i].q[row] = block[i];
    }
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) r[i] = t[i];
}

/// Lane i of the result is the sum of the lanes of row i.
HEED_INLINE Vf sum_each(Vf (&r)[kLanes]) {
  Vf sums;
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    four::Vf of_quarter[4];
#pragma GCC unroll 4
    for (int quarter = 0; quarter < 4; ++quarter) {
      four::Vf block[4];
      transpose_quarter(r, 4 * i, quarter, block);
      of_quarter[quarter] = four::add(four::add(block[0], block[2]), four::add(block[1], block[3]));
    }
    sums.q[i] = four::add(four::add(of_quarter[0], of_quarter[1]), four::add(of_quarter[2], of_quarter[3]));
  }
  return sums;
}

typedef std::uint32_t FourBits __attribute__((vector_size(16)));
typedef std::uint16_t FourHalves __attribute__((vector_size(8)));
HEED_INLINE FourBits four_bits(four::Vf a) {
  FourBits bits;
  __builtin_memcpy(&bits, &a, sizeof bits);
  return bits;
}
HEED_INLINE four::Vf four_floats(FourBits bits) {
  four::Vf a;
  __builtin_memcpy(&a, &bits, sizeof a);
  return a;
}
/// Rounds four floats to bf16, to nearest and ties to even, and returns the bits in high halves. Subnormal
/// numbers become 0.
HEED_INLINE FourBits bits_of_rounded(four::Vf a) {
  const FourBits bits = four_bits(a);
  const FourBits is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const FourBits is_normal = (bits & 0x7f800000u) != 0;
  const FourBits rounded = bits + 0x7fffu + (bits >> 16 & 1u);
  return ((is_nan & (bits | 0x400000u)) | (~is_nan & rounded & is_normal) | (bits & 0x80000000u)) &
         0xffff0000u;
}
HEED_INLINE Vf round_bf16(Vf a) {
  for (int i = 0; i < 4; ++i) a.q[i] = four_floats(bits_of_rounded(a.q[i]));
  return a;
}
/// Rounds likewise and stores. Returns the stored numbers as floats.
HEED_INLINE Vf store_bf16(std::uint16_t* p, Vf a) {
  a = round_bf16(a);
  for (int i = 0; i < 4; ++i) {
    const FourHalves halves = __builtin_convertvector(four_bits(a.q[i]) >> 16, FourHalves);
    __builtin_memcpy(p + 4 * i, &halves, sizeof halves);
  }
  return a;
}
/// Rounds two vectors and stores them contiguously. Returns the stored numbers as pairs.
HEED_INLINE Vf store_bf16(std::uint16_t* p, Vf a, Vf b) {
  store_bf16(p, a);
  store_bf16(p + kLanes, b);
  Vf pairs;
  __builtin_memcpy(&pairs, p, sizeof pairs);
  return pairs;
}
/// The two bf16 of each lane, as floats.
HEED_INLINE Vf low_halves(Vf pairs) {
  for (int i = 0; i < 4; ++i) pairs.q[i] = four_floats(four_bits(pairs.q[i]) << 16);
  return pairs;
}
HEED_INLINE Vf high_halves(Vf pairs) {
  for (int i = 0; i < 4; ++i) pairs.q[i] = four_floats(four_bits(pairs.q[i]) & 0xffff0000u);
  return pairs;
}
/// The high halves of two vectors, as pairs.
HEED_INLINE Vf pair_high_halves(Vf low, Vf high) {
  for (int i = 0; i < 4; ++i)
    low.q[i] = four_floats(four_bits(low.q[i]) >> 16 | (four_bits(high.q[i]) & 0xffff0000u));
  return low;
}
/// Rounds two vectors to bf16, to nearest and ties away from 0. Lane i of the result holds lane i of both.
/// NaN stay NaN, except for bits from 0x7fff8000 on, which no arithmetic makes.
HEED_INLINE Vf pair_rounded(Vf low, Vf high) {
  for (int i = 0; i < 4; ++i) {
    low.q[i] = four_floats(four_bits(low.q[i]) + 0x8000u);
    high.q[i] = four_floats(four_bits(high.q[i]) + 0x8000u);
  }
  return pair_high_halves(low, high);
}
/// Lane i holds element i of both rows.
HEED_INLINE Vf interleave_bf16(const std::uint16_t* low, const std::uint16_t* high) {
  Vf pairs;
  for (int i = 0; i < 4; ++i) {
    FourHalves halves[2];
    __builtin_memcpy(&halves[0], low + 4 * i, sizeof halves[0]);
    __builtin_memcpy(&halves[1], high + 4 * i, sizeof halves[1]);
    pairs.q[i] = four_floats(__builtin_convertvector(halves[0], FourBits) |
                             __builtin_convertvector(halves[1], FourBits) << 16);
  }
  return pairs;
}

/// Such units do not use bf16 dot products in lanes.
inline constexpr bool kHasBf16Dot = false;
Vf dot_bf16(Vf a, Vf b, Vf c);
Vf pairs_of_one();

}  // namespace heed::detail::HEED_ISA

#include "attention/isa/simd_no_pairs.hpp"
