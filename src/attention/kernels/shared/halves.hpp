// Conversion of 16-bit floats, one at a time.
#pragma once

#include <cstdint>

namespace heed::detail::HEED_ISA {

inline float float_of_bits(std::uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}
inline std::uint32_t bits_of_float(float x) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}

/// IEEE half to float: the exponent is rebiased by a multiplication, which handles subnormals too.
inline float half_to_float(std::uint16_t h) {
  const std::uint32_t sign = (h & 0x8000u) << 16;
  const std::uint32_t rest = (h & 0x7fffu) << 13;
  if (rest >= 0x0f800000u) return float_of_bits(sign | (rest + 0x70000000u));  // infinity, NaN: exponent 255
  return float_of_bits(sign | bits_of_float(float_of_bits(rest) * 0x1p112f));
}

/// Rounds to nearest, ties to even; NaN stays NaN.
inline std::uint16_t to_bf16(float x) {
  const std::uint32_t bits = bits_of_float(x);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return static_cast<std::uint16_t>(is_nan ? (bits >> 16) | 0x40u : rounded);
}

/// Rounds to IEEE half; overflow gives infinity. Subnormal results are rounded by adding 0.5 in f32, which
/// rounds to multiples of 2^-24, the step of subnormal halves.
inline std::uint16_t to_half(float x) {
  const std::uint32_t bits = bits_of_float(x);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x47800000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65536 and above
  if (magnitude < 0x38800000u) {                                                    // below 2^-14
    const std::uint32_t sum = bits_of_float(float_of_bits(magnitude) + 0.5f);       // 0.5 has steps of 2^-24
    return static_cast<std::uint16_t>(sign | (sum - 0x3f000000u));
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

}  // namespace heed::detail::HEED_ISA
