// Vectors of four floats in the compilers' own vector type. NEON, the plain target and vectors of sixteen
// (simd_wide.hpp) share it. HEED_VECTORS is the namespace.
#pragma once

#include <cstdint>

#if !defined(HEED_VECTORS)
#define HEED_VECTORS HEED_ISA
#endif

namespace heed::detail::HEED_VECTORS {

typedef float Vf __attribute__((vector_size(16)));
typedef std::int32_t Mask __attribute__((vector_size(16)));  // all bits of a lane set, or none
inline constexpr int kLanes = 4;

#define HEED_INLINE __attribute__((always_inline)) inline

HEED_INLINE Vf zero() { return Vf{0, 0, 0, 0}; }
HEED_INLINE Vf splat(float x) { return Vf{x, x, x, x}; }
HEED_INLINE Vf load(const float* p) {
  Vf a;
  __builtin_memcpy(&a, p, sizeof a);
  return a;
}
HEED_INLINE void store(float* p, Vf a) { __builtin_memcpy(p, &a, sizeof a); }
/// On some targets this bypasses the caches, for memory that will not be read soon; here it is a plain store.
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
  Mask bits;
  for (int i = 0; i < kLanes; ++i) bits[i] = static_cast<std::int32_t>(std::uint32_t{p[i]} << 16);
  return from_bits(bits);
}
/// The low halves of kLanes bytes, and the high ones.
HEED_INLINE Vf load_low_halves(const std::uint8_t* p) {
  Vf x = zero();
  for (int i = 0; i < kLanes; ++i) x[i] = static_cast<float>(p[i] & 15);
  return x;
}
HEED_INLINE Vf load_high_halves(const std::uint8_t* p) {
  Vf x = zero();
  for (int i = 0; i < kLanes; ++i) x[i] = static_cast<float>(p[i] >> 4);
  return x;
}
/// table[index] for sixteen indices below 16.
typedef std::uint8_t SixteenBytes __attribute__((vector_size(16)));
HEED_INLINE SixteenBytes look_up(SixteenBytes table, SixteenBytes indices) {
  SixteenBytes made = indices;
  for (int i = 0; i < 16; ++i) made[i] = table[indices[i]];
  return made;
}
/// Sixteen signed bytes, kLanes to a vector.
HEED_INLINE void widen_int8(SixteenBytes bytes, Vf* to) {
  for (int i = 0; i < 16; ++i)
    to[i / kLanes][i % kLanes] = static_cast<float>(static_cast<std::int8_t>(bytes[i]));
}
// Codes of a cache's rows (kernels/shared/coded_rows.hpp): signed bytes; half bytes, the low one first; e4m3,
// whose shifted bits are a float, too small by a factor of 2^120.
HEED_INLINE Vf load_int8(const std::uint8_t* p) {
  Vf x;
  for (int i = 0; i < kLanes; ++i) x[i] = static_cast<float>(static_cast<std::int8_t>(p[i]));
  return x;
}
HEED_INLINE Vf load_int4(const std::uint8_t* p) {
  return Vf{static_cast<float>(p[0] & 15), static_cast<float>(p[0] >> 4), static_cast<float>(p[1] & 15),
            static_cast<float>(p[1] >> 4)};
}
HEED_INLINE Vf load_e4m3(const std::uint8_t* p) {
  Mask bits;
  for (int i = 0; i < kLanes; ++i)
    bits[i] = static_cast<std::int32_t>((p[i] & 0x80u) << 24 | (p[i] & 0x7fu) << 20);
  return from_bits(bits) * 0x1p120f;
}
HEED_INLINE Mask load_bytes(const std::uint8_t* p) {
  return Mask{p[0], p[1], p[2], p[3]} != Mask{0, 0, 0, 0};
}

HEED_INLINE Vf add(Vf a, Vf b) { return a + b; }
HEED_INLINE Vf sub(Vf a, Vf b) { return a - b; }
/// a - b[lane], formed in f64 and rounded.
HEED_INLINE Vf narrowed_difference(double a, const double* b) {
  Vf x = zero();
  for (int i = 0; i < kLanes; ++i) x[i] = static_cast<float>(a - b[i]);
  return x;
}
HEED_INLINE Vf mul(Vf a, Vf b) { return a * b; }
HEED_INLINE Vf div(Vf a, Vf b) { return a / b; }

HEED_INLINE Mask greater(Vf a, Vf b) { return a > b; }
HEED_INLINE Mask greater_equal(Vf a, Vf b) { return a >= b; }
HEED_INLINE Mask both(Mask a, Mask b) { return a & b; }
HEED_INLINE Mask either(Mask a, Mask b) { return a | b; }
HEED_INLINE Mask without(Mask a, Mask b) { return a & ~b; }
HEED_INLINE std::uint32_t bits_of(Mask m) {
  Mask bits = m & Mask{1, 2, 4, 8};
  bits |= __builtin_shufflevector(bits, bits, 2, 3, 0, 1);
  bits |= __builtin_shufflevector(bits, bits, 1, 0, 3, 2);
  return static_cast<std::uint32_t>(bits[0]);
}
HEED_INLINE bool any(Mask m) { return (m[0] | m[1] | m[2] | m[3]) != 0; }
HEED_INLINE Vf keep(Mask m, Vf a) { return from_bits(m & to_bits(a)); }
HEED_INLINE Vf select(Mask m, Vf yes, Vf no) { return from_bits((m & to_bits(yes)) | (~m & to_bits(no))); }
HEED_INLINE Vf maximum(Vf a, Vf b) { return select(a > b, a, b); }
HEED_INLINE Vf minimum(Vf a, Vf b) { return select(a < b, a, b); }
HEED_INLINE Vf absolute(Vf a) {
  return from_bits(to_bits(a) & Mask{0x7fffffff, 0x7fffffff, 0x7fffffff, 0x7fffffff});
}

HEED_INLINE std::uint64_t bits_of_nonzero(const std::uint64_t* words) {
  std::uint64_t bits = 0;
  for (int i = 0; i < 8; ++i) bits |= std::uint64_t{words[i] != 0} << i;
  return bits;
}

HEED_INLINE Vf shift_exponent(Vf a, Vf t) {
  typedef std::uint32_t Bits __attribute__((vector_size(16)));
  Bits n, x;
  __builtin_memcpy(&n, &t, sizeof n);
  __builtin_memcpy(&x, &a, sizeof x);
  x += n << 23;
  __builtin_memcpy(&a, &x, sizeof a);
  return a;
}
HEED_INLINE Vf shift_exponent_where(Mask m, Vf a, Vf t) { return keep(m, shift_exponent(a, t)); }

HEED_INLINE Vf lane_numbers() { return Vf{0, 1, 2, 3}; }
HEED_INLINE Vf slide_up(Vf a, float first) { return __builtin_shufflevector(a, splat(first), 4, 0, 1, 2); }
HEED_INLINE float reduce_add(Vf a) { return (a[0] + a[2]) + (a[1] + a[3]); }
HEED_INLINE float reduce_max(Vf a) {
  const float x = a[0] > a[2] ? a[0] : a[2];
  const float y = a[1] > a[3] ? a[1] : a[3];
  return x > y ? x : y;
}

HEED_INLINE void transpose(Vf (&r)[kLanes]) {
  const Vf low_a = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
  const Vf high_a = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
  const Vf low_b = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
  const Vf high_b = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
  r[0] = __builtin_shufflevector(low_a, low_b, 0, 1, 4, 5);
  r[1] = __builtin_shufflevector(low_a, low_b, 2, 3, 6, 7);
  r[2] = __builtin_shufflevector(high_a, high_b, 0, 1, 4, 5);
  r[3] = __builtin_shufflevector(high_a, high_b, 2, 3, 6, 7);
}

/// Lane i of the result is the sum of the lanes of row i.
HEED_INLINE Vf sum_each(Vf (&r)[kLanes]) {
  transpose(r);
  Vf sum = r[0];
  for (int i = 1; i < kLanes; ++i) sum = add(sum, r[i]);
  return sum;
}

}  // namespace heed::detail::HEED_VECTORS
