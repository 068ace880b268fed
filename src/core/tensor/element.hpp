// Access to one element of any dtype through the wide type that holds it.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "heed/dtype.hpp"

namespace heed::detail {

/// Calls `visit` with a value-initialised element of the C++ type of `dtype` and returns its result. Callers
/// that do not trust bool bytes read them as std::uint8_t; see load().
template <class Visitor>
decltype(auto) with_element_type(DType dtype, Visitor&& visit) {
  switch (dtype) {
    case DType::f64:
      return visit(double{});
    case DType::f32:
      return visit(float{});
    case DType::f16:
      return visit(Float16{});
    case DType::bf16:
      return visit(BFloat16{});
    case DType::i64:
      return visit(std::int64_t{});
    case DType::i32:
      return visit(std::int32_t{});
    case DType::u8:
      return visit(std::uint8_t{});
    case DType::boolean:
      break;
  }
  return visit(bool{});
}

/// Element `index` of `data`, widened: floats to double, all others to std::int64_t. A bool is true for any
/// byte that is not 0. A file may hold bytes other than 0 and 1, and reading those as `bool` is undefined.
template <class T>
auto load(const void* data, std::int64_t index) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>)
    return static_cast<double>(to_float(static_cast<const T*>(data)[index]));
  else if constexpr (std::is_same_v<T, bool>)
    return static_cast<std::int64_t>(static_cast<const std::uint8_t*>(data)[index] != 0);
  else if constexpr (std::is_floating_point_v<T>)
    return static_cast<double>(static_cast<const T*>(data)[index]);
  else
    return static_cast<std::int64_t>(static_cast<const T*>(data)[index]);
}

/// Truncates a double to std::int64_t. NaN gives 0; values out of range are clamped.
inline std::int64_t truncate(double value) {
  if (std::isnan(value)) return 0;
  if (value >= 0x1p63) return std::numeric_limits<std::int64_t>::max();
  if (value < -0x1p63) return std::numeric_limits<std::int64_t>::min();
  return static_cast<std::int64_t>(value);
}

/// A double that rounds to 16 bits as the integer itself does: bits that a double cannot hold become one bit
/// below the others (rounding to odd, Boldo and Melquiond 2008).
inline double rounded_to_odd(std::int64_t value) {
  constexpr std::int64_t kExact = std::int64_t{1} << 53, kLow = (1 << 10) - 1;
  if (value >= -kExact && value <= kExact) return static_cast<double>(value);
  return static_cast<double>((value & ~kLow) | ((value & kLow) != 0 ? kLow + 1 : 0));
}
inline double rounded_to_odd(double value) { return value; }

/// Stores a double or std::int64_t as T with the conversions of copy() in heed/tensor.hpp.
template <class T, class Wide>
void store(void* data, std::int64_t index, Wide value) {
  if constexpr (std::is_same_v<T, Float16>) {
    static_cast<T*>(data)[index] = to_float16(rounded_to_odd(value));
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    static_cast<T*>(data)[index] = to_bfloat16(rounded_to_odd(value));
  } else if constexpr (std::is_same_v<T, bool>) {
    static_cast<std::uint8_t*>(data)[index] = value != Wide{} ? 1 : 0;
  } else if constexpr (std::is_floating_point_v<T>) {
    static_cast<T*>(data)[index] = static_cast<T>(value);
  } else {
    std::int64_t whole = 0;
    if constexpr (std::is_floating_point_v<Wide>)
      whole = truncate(value);
    else
      whole = value;
    if (whole < std::int64_t{std::numeric_limits<T>::min()}) whole = std::numeric_limits<T>::min();
    if (whole > std::int64_t{std::numeric_limits<T>::max()}) whole = std::numeric_limits<T>::max();
    static_cast<T*>(data)[index] = static_cast<T>(whole);
  }
}

}  // namespace heed::detail
