// Reads an Operand and writes an Output, by element or by row, for any dtype.
#pragma once

#include <cstdint>
#include <span>

#include "attention/problem/problem.hpp"
#include "core/tensor/element.hpp"

namespace heed::detail {

template <class Place>
std::int64_t offset_in(const Place& place, std::int64_t a, std::int64_t b, std::int64_t c = 0,
                       std::int64_t d = 0) {
  return a * place.stride[0] + b * place.stride[1] + c * place.stride[2] + d * place.stride[3];
}

/// Returns element [a, b, c, d] as a double. Axes that the operand lacks have stride 0, so their indices do
/// not count.
inline double read(const Operand& from, std::int64_t a, std::int64_t b, std::int64_t c = 0,
                   std::int64_t d = 0) {
  const std::int64_t at = offset_in(from, a, b, c, d);
  return with_element_type(
      from.dtype, [&](auto element) { return static_cast<double>(load<decltype(element)>(from.data, at)); });
}

/// Reads the row.size() elements from [a, b, c, first] on.
template <class Number>
void read_numbers(const Operand& from, std::int64_t a, std::int64_t b, std::int64_t c, std::span<Number> row,
                  std::int64_t first = 0) {
  const std::int64_t start = offset_in(from, a, b, c, first);
  with_element_type(from.dtype, [&](auto element) {
    const auto number = [&](std::int64_t at) {
      return static_cast<Number>(load<decltype(element)>(from.data, at));
    };
    const auto count = static_cast<std::int64_t>(row.size());
    Number* to = row.data();
    if (from.stride[3] == 1)  // a compiler can vectorise this case
      for (std::int64_t n = 0; n < count; ++n) to[n] = number(start + n);
    else
      for (std::int64_t n = 0; n < count; ++n) to[n] = number(start + n * from.stride[3]);
  });
}

inline void read_row(const Operand& from, std::int64_t a, std::int64_t b, std::int64_t c,
                     std::span<double> row) {
  read_numbers(from, a, b, c, row);
}

/// Rounds a number to the target's dtype and writes it, unless the target is empty.
template <class Number>
void write(const Output& to, Number value, std::int64_t a, std::int64_t b, std::int64_t c,
           std::int64_t d = 0) {
  if (!to) return;
  const std::int64_t at = offset_in(to, a, b, c, d);
  with_element_type(to.dtype, [&](auto element) { store<decltype(element)>(to.data, at, value); });
}

/// Returns the address of element [a, b, c, 0] of an f32 target.
inline float* f32_row(const Output& to, std::int64_t a, std::int64_t b, std::int64_t c) {
  return static_cast<float*>(to.data) + offset_in(to, a, b, c);
}

}  // namespace heed::detail
