// Names and sizes of element types, and the two 16-bit floats that C++20 lacks.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "heed/element_type.hpp"
#include "heed/export.hpp"

namespace heed {

/// IEEE 754 binary16: 1 sign, 5 exponent, 10 fraction bits.
struct Float16 {
  std::uint16_t bits = 0;
};

/// bfloat16: the upper half of a binary32; 1 sign, 8 exponent, 7 fraction bits.
struct BFloat16 {
  std::uint16_t bits = 0;
};

/// Widening is exact. Narrowing rounds to nearest, ties to even; overflow gives infinity, a NaN stays a NaN.
HEED_API float to_float(Float16 value) noexcept;
HEED_API Float16 to_float16(float value) noexcept;
inline float to_float(BFloat16 value) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}
HEED_API BFloat16 to_bfloat16(float value) noexcept;
/// Converts from a double with one rounding; a detour through float would round twice.
HEED_API Float16 to_float16(double value) noexcept;
HEED_API BFloat16 to_bfloat16(double value) noexcept;

/// Bytes of one element: 8, 4, 2, 2, 8, 4, 1, 1; 0 for an invalid value.
HEED_API std::size_t size_of(DType dtype) noexcept;
/// "f64", "f32", "f16", "bf16", "i64", "i32", "u8", "bool"; "" for an invalid value.
HEED_API std::string_view name_of(DType dtype) noexcept;
/// The dtype of that name, or nullopt.
HEED_API std::optional<DType> dtype_named(std::string_view name) noexcept;
/// True for f64, f32, f16 and bf16.
HEED_API bool is_floating(DType dtype) noexcept;

/// The DType of a C++ element type.
template <class T>
struct dtype_of;
template <>
struct dtype_of<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct dtype_of<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct dtype_of<Float16> {
  static constexpr DType value = DType::f16;
};
template <>
struct dtype_of<BFloat16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct dtype_of<std::int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct dtype_of<std::int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct dtype_of<std::uint8_t> {
  static constexpr DType value = DType::u8;
};
template <>
struct dtype_of<bool> {
  static constexpr DType value = DType::boolean;
};

/// The DType of a C++ element type, as a value.
template <class T>
inline constexpr DType dtype_of_v = dtype_of<T>::value;

}  // namespace heed
