#include "attention/kv_cache/codes.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "attention/problem/operands.hpp"
#include "core/message.hpp"
#include "heed/attention/kv_cache.hpp"
#include "heed/dtype.hpp"

namespace heed::detail {
namespace {

constexpr float kMaxInt8 = 127;
constexpr float kMaxInt4 = 15;
constexpr float kMaxE4m3 = 448;
constexpr float kSmallestScale = 0x1p-126f;  // a normal number, so dividing by it is safe

float widened(std::uint16_t bits) { return to_float(BFloat16{bits}); }

// The smallest bf16 >= x, for x > 0; rounded_down: the largest bf16 <= x.
std::uint16_t rounded_up(float x) {
  std::uint16_t bits = to_bfloat16(x).bits;
  while (widened(bits) < x) ++bits;
  return bits;
}
std::uint16_t rounded_down(float x) {
  std::uint16_t bits = to_bfloat16(x).bits;
  if (widened(bits) > x) bits = bits == 0 ? 0x8001 : static_cast<std::uint16_t>(x > 0 ? bits - 1 : bits + 1);
  return bits;
}

// The numbers of e4m3, indexed by the lower seven bits of their codes. Code 127 is NaN and never written.
std::array<float, 127> e4m3_numbers() {
  std::array<float, 127> numbers{};
  for (int code = 0; code < 127; ++code) {
    const int exponent = code >> 3, fraction = code & 7;
    numbers[static_cast<std::size_t>(code)] =
        exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                      : std::ldexp(1.0f + static_cast<float>(fraction) / 8, exponent - 7);
  }
  return numbers;
}

const std::array<float, 127>& e4m3_table() {
  static const std::array<float, 127> table = e4m3_numbers();
  return table;
}

// Rounds to the nearest number; of two equally near, to the one with an even code.
std::uint8_t to_e4m3(float x) {
  const std::array<float, 127>& table = e4m3_table();
  const float magnitude = std::min(std::abs(x), kMaxE4m3);
  auto above = static_cast<std::size_t>(std::ranges::lower_bound(table, magnitude) - table.begin());
  if (above > 0) {
    const float up = table[above] - magnitude, down = magnitude - table[above - 1];
    if (down < up || (down == up && above % 2 == 1)) --above;
  }
  return static_cast<std::uint8_t>(above | (std::signbit(x) ? 0x80u : 0u));
}

float number_of(RowFormat format, std::uint8_t code) {
  switch (format) {
    case RowFormat::int8:
      return static_cast<float>(static_cast<std::int8_t>(code));
    case RowFormat::e4m3:
      return std::copysign(e4m3_table()[code & 0x7fu], (code & 0x80u) != 0 ? -1.0f : 1.0f);
    default:
      return static_cast<float>(code);
  }
}

// Rounds to the nearest whole number, ties to even; |x| < 2^22. Same result as std::nearbyint, without its
// call.
float whole(float x) {
  constexpr float kMagic = 0x1.8p23f;
  return (x + kMagic) - kMagic;
}

}  // namespace

CodeScale scale_for(RowFormat format, float low, float high) {
  if (format == RowFormat::int4) {
    const std::uint16_t offset = rounded_down(low);
    // Halves, because the range of two large numbers may overflow.
    const float half_step = (high / 2 - widened(offset) / 2) / kMaxInt4;
    return {rounded_up(std::max(2 * std::min(half_step, 0x1.fep126f), kSmallestScale)), offset};
  }
  const float most = format == RowFormat::int8 ? kMaxInt8 : kMaxE4m3;
  return {rounded_up(std::max(std::max(std::abs(low), std::abs(high)) / most, kSmallestScale)), 0};
}

std::uint8_t encode(RowFormat format, CodeScale scale, float x) {
  const float step = widened(scale.scale);
  switch (format) {
    case RowFormat::int8: {
      const float code = whole(std::clamp(x / step, -kMaxInt8, kMaxInt8));
      return static_cast<std::uint8_t>(static_cast<std::int8_t>(code));
    }
    case RowFormat::int4: {
      const float code = (x / 2 - widened(scale.offset) / 2) / step * 2;
      return static_cast<std::uint8_t>(whole(std::clamp(code, 0.0f, kMaxInt4)));
    }
    default:
      return to_e4m3(x / step);
  }
}

float decode(RowFormat format, CodeScale scale, std::uint8_t code) {
  return std::fma(number_of(format, code), widened(scale.scale), widened(scale.offset));
}

std::uint8_t code_at(RowFormat format, const std::uint8_t* row, std::int64_t i) {
  if (format != RowFormat::int4) return row[i];
  return static_cast<std::uint8_t>(i % 2 == 0 ? row[i / 2] & 15u : row[i / 2] >> 4);
}

void set_code(RowFormat format, std::uint8_t* row, std::int64_t i, std::uint8_t code) {
  if (format != RowFormat::int4)
    row[i] = code;
  else if (i % 2 == 0)
    row[i / 2] = static_cast<std::uint8_t>((row[i / 2] & 0xf0u) | code);
  else
    row[i / 2] = static_cast<std::uint8_t>((row[i / 2] & 15u) | unsigned{code} << 4);
}

void rotate(std::span<float> x) {
  const std::size_t n = std::size_t{1} << std::countr_zero(x.size());
  const float norm = 1 / std::sqrt(static_cast<float>(n));
  for (std::size_t block = 0; block < x.size(); block += n) {
    for (std::size_t half = 1; half < n; half *= 2)
      for (std::size_t i = block; i < block + n; i += 2 * half)
        for (std::size_t k = i; k < i + half; ++k) {
          const float a = x[k], b = x[k + half];
          x[k] = a + b;
          x[k + half] = a - b;
        }
    for (std::size_t k = block; k < block + n; ++k) x[k] *= norm;
  }
}

}  // namespace heed::detail

namespace heed {

Tensor hadamard(const TensorView& x) {
  if (!is_floating(x.dtype()))
    detail::refuse("x has dtype ", x.dtype(), "; f64, f32, f16 or bf16 is expected");
  if (x.rank() == 0) detail::refuse("x has no axes; one or more is expected");
  detail::check_memory("x", x);
  Tensor rotated = Tensor::copy_of(x, DType::f32);
  const auto width = static_cast<std::size_t>(x.size(-1));
  for (std::size_t at = 0; width > 0 && at < rotated.values<float>().size(); at += width)
    detail::rotate(rotated.values<float>().subspan(at, width));
  return rotated;
}

}  // namespace heed
