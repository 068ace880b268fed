// The largest of numbered values.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

namespace heed::detail {

/// Keeps the `count` places of the largest values, largest first; equal values are ordered by place. No value
/// may be NaN.
template <class Value>
void keep_largest(std::vector<std::int64_t>& places, std::int64_t count, Value value) {
  const auto end = places.begin() + std::clamp<std::int64_t>(count, 0, std::ssize(places));
  std::partial_sort(places.begin(), end, places.end(), [&](std::int64_t a, std::int64_t b) {
    return value(a) > value(b) || (value(a) == value(b) && a < b);
  });
  places.erase(end, places.end());
}

/// The places of the `count` largest values, in that order. NaN counts as the smallest.
[[nodiscard]] inline std::vector<std::int64_t> largest_of(std::span<const double> values,
                                                          std::int64_t count) {
  std::vector<std::int64_t> places(values.size());
  std::iota(places.begin(), places.end(), std::int64_t{0});
  keep_largest(places, count, [&](std::int64_t place) {
    const double value = values[static_cast<std::size_t>(place)];
    return std::isnan(value) ? -std::numeric_limits<double>::infinity() : value;
  });
  return places;
}

}  // namespace heed::detail
