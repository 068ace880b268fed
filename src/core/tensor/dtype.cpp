#include "heed/dtype.hpp"

#include <array>
#include <bit>

namespace heed {
namespace {

struct DTypeInfo {
  std::string_view name;
  std::size_t size;
  bool floating;
};

// Indexed by DType.
constexpr std::array<DTypeInfo, 8> kInfo{{{"f64", 8, true},
                                          {"f32", 4, true},
                                          {"f16", 2, true},
                                          {"bf16", 2, true},
                                          {"i64", 8, false},
                                          {"i32", 4, false},
                                          {"u8", 1, false},
                                          {"bool", 1, false}}};

DTypeInfo info(DType dtype) noexcept {
  const auto at = static_cast<std::size_t>(dtype);
  return at < kInfo.size() ? kInfo[at] : DTypeInfo{"", 0, false};
}

// A binary floating-point format in the low bits of a word: 1 sign, kExponentBits, kFractionBits.
template <int kExponentBits, int kFractionBits>
struct Format {
  static constexpr int exponent_bits = kExponentBits;
  static constexpr int fraction_bits = kFractionBits;
  static constexpr int bias = (1 << (kExponentBits - 1)) - 1;
  static constexpr std::uint16_t infinity =
      static_cast<std::uint16_t>(((1 << kExponentBits) - 1) << kFractionBits);
};
using Half = Format<5, 10>;
using Brain = Format<8, 7>;

// Rounds a double to a 16-bit format, to nearest and ties to even, in one step. The double is 2^e * 1.f. Its
// significand (53 bits) is shifted right to the number of bits that the format holds at that exponent (fewer
// if subnormal). The bits shifted out decide the rounding. A carry out of the fraction reaches the exponent
// by plain addition, up to and including infinity.
template <class F>
std::uint16_t narrow(double value) noexcept {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 63) << 15);
  const auto exponent_field = static_cast<int>((bits >> 52) & 0x7ff);
  std::uint64_t significand = bits & ((std::uint64_t{1} << 52) - 1);
  if (exponent_field == 0x7ff) {
    if (significand == 0) return static_cast<std::uint16_t>(sign | F::infinity);
    const auto payload = static_cast<std::uint16_t>(significand >> (52 - F::fraction_bits));
    const auto quiet = static_cast<std::uint16_t>(1u << (F::fraction_bits - 1));
    return static_cast<std::uint16_t>(sign | F::infinity | quiet | payload);
  }
  if (exponent_field == 0)
    return sign;  // zero; double subnormals are far below half of the smallest 16-bit value
  significand |= std::uint64_t{1} << 52;
  const int exponent = exponent_field - 1023 + F::bias;  // biased exponent in the target
  if (exponent >= (1 << F::exponent_bits) - 1) return static_cast<std::uint16_t>(sign | F::infinity);
  // Bits to drop: 52 - fraction_bits for a normal number, plus one per step below the smallest exponent.
  const int drop = 52 - F::fraction_bits + (exponent < 1 ? 1 - exponent : 0);
  if (drop > 53) return sign;  // below half of the smallest subnormal
  const std::uint64_t kept = significand >> drop;
  const std::uint64_t rest = significand & ((std::uint64_t{1} << drop) - 1);
  const std::uint64_t half = std::uint64_t{1} << (drop - 1);
  const bool up = rest > half || (rest == half && (kept & 1) != 0);
  // For a normal number, `kept` still has the hidden bit, which counts as one exponent step.
  const std::uint64_t base = exponent < 1 ? 0 : static_cast<std::uint64_t>(exponent - 1) << F::fraction_bits;
  return static_cast<std::uint16_t>(sign | (base + kept + (up ? 1 : 0)));
}

}  // namespace

float to_float(Float16 value) noexcept {
  const std::uint32_t sign = (value.bits & 0x8000u) << 16;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1fu;
  const std::uint32_t fraction = value.bits & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24, exact in f32
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  const std::uint32_t wide_exponent = exponent == 0x1f ? 0xffu : exponent + (127 - 15);
  return std::bit_cast<float>(sign | (wide_exponent << 23) | (fraction << 13));
}

Float16 to_float16(double value) noexcept { return {narrow<Half>(value)}; }
BFloat16 to_bfloat16(double value) noexcept { return {narrow<Brain>(value)}; }
// f32 to f64 is exact, so this rounds once.
Float16 to_float16(float value) noexcept { return to_float16(static_cast<double>(value)); }
BFloat16 to_bfloat16(float value) noexcept { return to_bfloat16(static_cast<double>(value)); }

std::size_t size_of(DType dtype) noexcept { return info(dtype).size; }
std::string_view name_of(DType dtype) noexcept { return info(dtype).name; }
bool is_floating(DType dtype) noexcept { return info(dtype).floating; }

std::optional<DType> dtype_named(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kInfo.size(); ++i)
    if (kInfo[i].name == name) return static_cast<DType>(i);
  return std::nullopt;
}

}  // namespace heed
