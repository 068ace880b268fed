// 2^x on vectors, for softmax.
//
// x is split into n + r, where n is the nearest integer and |r| <= 1/2. 2^r is a polynomial of degree 5.
// Weighted least squares minimised its largest error in ulp; a search then found the best rounded
// coefficients. It is monic:
//
//   ((((r + a4) r + a3) r + a2) r + a1) r + a0 = kGain * 2^r (1 + e),   |e| <= 1.7e-7
//
// Being monic saves one multiplication. The factor kGain cancels when weights are divided by their sum; code
// that needs the sum itself subtracts kLog2Gain. The largest error is 1.55 ulp of the result, and 1.82 in the
// plain target, whose mul_add rounds twice (tests/vector_math_test.cpp walks every float).
//
// Adding 1.5 * 2^23 finds n: the sum's low bits are then n as an integer, and adding them to the polynomial's
// exponent scales it by 2^n. Subtracting `shift` (an integer) on the way costs nothing: with c = 1.5 * 2^23 -
// shift, t = x + c holds n - shift, and x - (t - c) is still r. So a change of shift scales results by an
// exact power of two.
#pragma once

namespace heed::detail::HEED_ISA {

inline constexpr float kRound = 12582912.0f;  // 1.5 * 2^23
inline constexpr float kGain = 748.85535f;
inline constexpr double kLog2Gain = 9.548543272480776;
inline constexpr double kGainExact = 748.8553553;
inline constexpr double kLn2 = 0.693147180559945309417;
/// Below this, shift_exponent would run out of exponents; such results are 0.
inline constexpr float kSmallestExponent = -125.0f;

inline constexpr float kExp2[] = {748.8554077148438f, 519.0669555664062f, 179.8910369873047f,
                                  41.564754486083984f, 7.244856834411621f};  // a0, a1, …

HEED_INLINE Vf exp2_polynomial(Vf r) {
  Vf p = add(r, splat(kExp2[4]));
  p = mul_add(p, r, splat(kExp2[3]));
  p = mul_add(p, r, splat(kExp2[2]));
  p = mul_add(p, r, splat(kExp2[1]));
  return mul_add(p, r, splat(kExp2[0]));
}

/// kGain * 2^(x - shift), for |x| < 2^22 and -125 <= x - shift <= 100; c = kRound - shift.
HEED_INLINE Vf exp2_bounded(Vf x, Vf c) {
  const Vf t = add(x, c);
  return shift_exponent(exp2_polynomial(sub(x, sub(t, c))), t);
}

/// The same, but 0 for x < smallest, which is shift - 125.
HEED_INLINE Vf exp2_flushed(Vf x, Vf c, Vf smallest) {
  const Vf t = add(x, c);
  return shift_exponent_where(greater_equal(x, smallest), exp2_polynomial(sub(x, sub(t, c))), t);
}

/// exp2_bounded() for a shift of 0, and exp2_flushed() for any shift.
struct Exp2 {
  HEED_INLINE Vf operator()(Vf x) const { return exp2_bounded(x, splat(kRound)); }
  HEED_INLINE Vf operator()(Vf x, Vf shift, Vf smallest) const {
    return exp2_flushed(x, sub(splat(kRound), shift), smallest);
  }
};

/// Without an overload (simd_avx512.hpp), the compiler chooses.
template <class V>
HEED_INLINE V in_register(V a) {
  return a;
}

/// The same bits beside tile products, which leave no time to load constants again.
struct Exp2InRegisters {
  HEED_INLINE Vf operator()(Vf x) const { return power(x); }
  HEED_INLINE Vf operator()(Vf x, Vf shift, Vf smallest) const { return power(x, shift, smallest); }
  /// exp2_bounded().
  HEED_INLINE Vf bounded(Vf x, Vf shifted) const {
    const Vf t = add(x, shifted);
    return shift_exponent(polynomial(sub(x, sub(t, shifted))), t);
  }
  /// exp2_flushed().
  HEED_INLINE Vf flushed(Vf x, Vf shifted, Vf smallest) const {
    const Vf t = add(x, shifted);
    return shift_exponent_where(greater_equal(x, smallest), polynomial(sub(x, sub(t, shifted))), t);
  }
  Vf c = in_register(splat(kRound)), minus_c = in_register(splat(-kRound));
  Vf a4 = in_register(splat(kExp2[4])), a3 = in_register(splat(kExp2[3])), a2 = in_register(splat(kExp2[2]));
  Vf a1 = in_register(splat(kExp2[1])), a0 = in_register(splat(kExp2[0]));

 private:
  HEED_INLINE Vf polynomial(Vf r) const {
    return mul_add(mul_add(mul_add(mul_add(add(r, a4), r, a3), r, a2), r, a1), r, a0);
  }
  // AVX-512 has instructions for r, and for a product with a power of two (simd_avx512.hpp).
  template <class V>
  HEED_INLINE V power(V x) const {
    if constexpr (requires { fraction(x); }) {
      const V r = fraction(x);
      return scale_by_power(polynomial(r), sub(x, r));
    } else {
      const V t = add(x, c);
      return shift_exponent(polynomial(sub(x, add(t, minus_c))), t);
    }
  }
  template <class V>
  HEED_INLINE V power(V x, V shift, V smallest) const {
    if constexpr (requires { fraction(x); }) {
      const V r = fraction(x);
      return scale_by_power(greater_equal(x, smallest), polynomial(r), sub(sub(x, r), shift));
    } else {
      return flushed(x, sub(c, shift), smallest);
    }
  }
};

}  // namespace heed::detail::HEED_ISA
