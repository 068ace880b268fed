// Sixteen floats in plain C++, with the results of AVX-512's instructions bit for bit: what the emulated
// matrix tiles are used with.
#pragma once

#include <cstdint>

#define HEED_INLINE __attribute__((always_inline)) inline

#include "attention/cpu/kernel/halves.hpp"

namespace heed::detail::HEED_ISA {

typedef float Vf __attribute__((vector_size(64)));
typedef std::int32_t Mask __attribute__((vector_size(64)));  // all bits of a lane set, or none
inline constexpr int kLanes = 16;
inline constexpr int kRegisters = 32;

HEED_INLINE Vf zero() { return Vf{}; }
HEED_INLINE Vf splat(float x) { return Vf{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }
HEED_INLINE Mask splat_bits(std::int32_t x) { return Mask{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }
HEED_INLINE Vf load(const float* p) {
  Vf a;
  __builtin_memcpy(&a, p, sizeof a);
  return a;
}
HEED_INLINE void store(float* p, Vf a) { __builtin_memcpy(p, &a, sizeof a); }
HEED_INLINE void store_past_caches(float* p, Vf a) { store(p, a); }
HEED_INLINE void end_stores_past_caches() {}
HEED_INLINE Vf load_first(const float* p, std::int64_t n) {
  Vf a = zero();
  for (int i = 0; i < kLanes && i < n; ++i) a[i] = p[i];
  return a;
}
HEED_INLINE void store_first(float* p, std::int64_t n, Vf a) {
  for (int i = 0; i < kLanes && i < n; ++i) p[i] = a[i];
}
HEED_INLINE Vf from_bits(Mask a) {
  Vf x;
  __builtin_memcpy(&x, &a, sizeof x);
  return x;
}
HEED_INLINE Mask to_bits(Vf a) {
  Mask x;
  __builtin_memcpy(&x, &a, sizeof x);
  return x;
}
HEED_INLINE Vf load_bf16(const std::uint16_t* p) {
  Vf a;
  for (int i = 0; i < kLanes; ++i) a[i] = float_of_bits(std::uint32_t{p[i]} << 16);
  return a;
}
HEED_INLINE Vf load_f16(const std::uint16_t* p) {
  Vf a;
  for (int i = 0; i < kLanes; ++i) a[i] = half_to_float(p[i]);
  return a;
}
HEED_INLINE void store_f16(std::uint16_t* p, Vf a) {
  for (int i = 0; i < kLanes; ++i) p[i] = to_half(a[i]);
}
HEED_INLINE Mask load_bytes(const std::uint8_t* p) {
  Mask bytes;
  for (int i = 0; i < kLanes; ++i) bytes[i] = p[i];
  return bytes != Mask{};
}

HEED_INLINE Vf add(Vf a, Vf b) { return a + b; }
HEED_INLINE Vf sub(Vf a, Vf b) { return a - b; }
HEED_INLINE Vf mul(Vf a, Vf b) { return a * b; }
HEED_INLINE Vf div(Vf a, Vf b) { return a / b; }
/// a * b + c, rounded once.
HEED_INLINE Vf mul_add(Vf a, Vf b, Vf c) {
  Vf x;
  for (int i = 0; i < kLanes; ++i) x[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return x;
}

HEED_INLINE Mask greater(Vf a, Vf b) { return a > b; }
HEED_INLINE Mask greater_equal(Vf a, Vf b) { return a >= b; }
HEED_INLINE Mask both(Mask a, Mask b) { return a & b; }
HEED_INLINE Mask either(Mask a, Mask b) { return a | b; }
HEED_INLINE Mask without(Mask a, Mask b) { return a & ~b; }
HEED_INLINE std::uint32_t bits_of(Mask m) {
  std::uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= static_cast<std::uint32_t>(m[i] & 1) << i;
  return bits;
}
HEED_INLINE bool any(Mask m) { return bits_of(m) != 0; }
HEED_INLINE Vf keep(Mask m, Vf a) { return from_bits(m & to_bits(a)); }
HEED_INLINE Vf select(Mask m, Vf yes, Vf no) { return from_bits((m & to_bits(yes)) | (~m & to_bits(no))); }
HEED_INLINE Vf maximum(Vf a, Vf b) { return select(a > b, a, b); }
HEED_INLINE Vf minimum(Vf a, Vf b) { return select(a < b, a, b); }
HEED_INLINE Vf absolute(Vf a) { return from_bits(to_bits(a) & splat_bits(0x7fffffff)); }

HEED_INLINE std::uint64_t bits_of_nonzero(const std::uint64_t* words) {
  std::uint64_t bits = 0;
  for (int i = 0; i < 8; ++i) bits |= std::uint64_t{words[i] != 0} << i;
  return bits;
}

HEED_INLINE Vf shift_exponent(Vf a, Vf t) {
  typedef std::uint32_t Bits __attribute__((vector_size(64)));
  Bits n, x;
  __builtin_memcpy(&n, &t, sizeof n);
  __builtin_memcpy(&x, &a, sizeof x);
  x += n << 23;
  __builtin_memcpy(&a, &x, sizeof a);
  return a;
}
HEED_INLINE Vf shift_exponent_where(Mask m, Vf a, Vf t) { return keep(m, shift_exponent(a, t)); }

HEED_INLINE Vf lane_numbers() { return Vf{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}; }
HEED_INLINE Vf slide_up(Vf a, float first) {
  Vf x;
  x[0] = first;
  for (int i = 1; i < kLanes; ++i) x[i] = a[i - 1];
  return x;
}
/// Halves are added to each other, as AVX-512 does it.
HEED_INLINE float reduce_add(Vf a) {
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) a[i] = a[i + half] + a[i];
  return a[0];
}
HEED_INLINE float reduce_max(Vf a) {
  float max = a[0];
  for (int i = 1; i < kLanes; ++i) max = a[i] > max ? a[i] : max;
  return max;
}

HEED_INLINE void transpose(Vf (&r)[kLanes]) {
  Vf t[kLanes];
  for (int i = 0; i < kLanes; ++i)
    for (int j = 0; j < kLanes; ++j) t[i][j] = r[j][i];
  for (int i = 0; i < kLanes; ++i) r[i] = t[i];
}

/// Lane i: the sum of the lanes of row i, in the order of simd_avx512.hpp.
HEED_INLINE Vf sum_each(Vf (&r)[kLanes]) {
  Vf sums;
  for (int i = 0; i < kLanes; ++i) {
    const auto quarter = [&](int q) {
      return (r[i][4 * q] + r[i][4 * q + 2]) + (r[i][4 * q + 1] + r[i][4 * q + 3]);
    };
    sums[i] = (quarter(0) + quarter(1)) + (quarter(2) + quarter(3));
  }
  return sums;
}

/// As the instruction rounds: subnormal numbers to 0.
inline std::uint16_t to_bf16_flushed(float x) {
  const std::uint32_t bits = bits_of_float(x);
  return (bits & 0x7f800000u) == 0 ? static_cast<std::uint16_t>((bits >> 16) & 0x8000u) : to_bf16(x);
}
/// Rounds to bf16, to nearest and ties to even, as floats.
HEED_INLINE Vf round_bf16(Vf a) {
  for (int i = 0; i < kLanes; ++i) a[i] = float_of_bits(std::uint32_t{to_bf16_flushed(a[i])} << 16);
  return a;
}
/// The same, stored; gives what was stored as floats.
HEED_INLINE Vf store_bf16(std::uint16_t* p, Vf a) {
  for (int i = 0; i < kLanes; ++i) p[i] = to_bf16_flushed(a[i]);
  return load_bf16(p);
}
/// Rounds two vectors and stores them one after the other; gives what was stored, as pairs.
HEED_INLINE Vf store_bf16(std::uint16_t* p, Vf a, Vf b) {
  store_bf16(p, a);
  store_bf16(p + kLanes, b);
  Vf pairs;
  __builtin_memcpy(&pairs, p, sizeof pairs);
  return pairs;
}
HEED_INLINE Vf low_halves(Vf pairs) { return from_bits(to_bits(pairs) << 16); }
HEED_INLINE Vf high_halves(Vf pairs) { return from_bits(to_bits(pairs) & splat_bits(-65536)); }
HEED_INLINE Vf pair_high_halves(Vf low, Vf high) {
  Vf pairs;
  for (int i = 0; i < kLanes; ++i)
    pairs[i] = float_of_bits(bits_of_float(low[i]) >> 16 | (bits_of_float(high[i]) & 0xffff0000u));
  return pairs;
}
HEED_INLINE Vf pair_rounded(Vf low, Vf high) { return pair_high_halves(round_bf16(low), round_bf16(high)); }
HEED_INLINE Vf interleave_bf16(const std::uint16_t* low, const std::uint16_t* high) {
  Vf pairs;
  for (int i = 0; i < kLanes; ++i) pairs[i] = float_of_bits(low[i] | std::uint32_t{high[i]} << 16);
  return pairs;
}

/// Bf16 dot products of pairs in lanes are not for this unit.
inline constexpr bool kHasBf16Dot = false;
Vf dot_bf16(Vf a, Vf b, Vf c);
Vf pairs_of_one();

}  // namespace heed::detail::HEED_ISA
