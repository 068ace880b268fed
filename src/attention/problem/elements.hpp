// Reads an Operand and writes an Output, by element or by row, for any dtype.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "attention/problem/problem.hpp"
#include "core/tensor/element.hpp"

namespace heed::detail {

template <class Place>
std::int64_t offset_in(const Place& place, std::int64_t a, std::int64_t b, std::int64_t c = 0,
                       std::int64_t d = 0) {
  return a * place.stride[0] + b * place.stride[1] + c * place.stride[2] + d * place.stride[3];
}

/// Returns the operand or output that begins at element [a, b, c] of this one.
template <class Place>
Place moved(Place place, std::int64_t a, std::int64_t b, std::int64_t c = 0) {
  using Byte =
      std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(place.data)>>, const char, char>;
  if (place)
    place.data = static_cast<Byte*>(place.data) +
                 offset_in(place, a, b, c) * static_cast<std::int64_t>(size_of(place.dtype));
  return place;
}

/// Returns element [a, b, c, d] of an Operand or Output as a double. Axes that it lacks have stride 0, so
/// their indices do not count.
template <class Place>
double read(const Place& from, std::int64_t a, std::int64_t b, std::int64_t c = 0, std::int64_t d = 0) {
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
    const auto count = std::ssize(row);
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

/// Zeroes rows [batch, h, i] of all heads h and all i in `range`.
inline void clear_rows(const Output& to, std::int64_t batch, std::int64_t heads, const KeyRange& range,
                       std::int64_t columns) {
  if (!to) return;
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t i = range.begin; i < range.end; ++i)
      if (to.stride[3] == 1)
        std::memset(moved(to, batch, h, i).data, 0, static_cast<std::size_t>(columns) * size_of(to.dtype));
      else
        for (std::int64_t c = 0; c < columns; ++c) write(to, 0.0, batch, h, i, c);
}

/// Returns the address of element [a, b, c, 0] of an f32 target.
inline float* f32_row(const Output& to, std::int64_t a, std::int64_t b, std::int64_t c) {
  return static_cast<float*>(to.data) + offset_in(to, a, b, c);
}

}  // namespace heed::detail
