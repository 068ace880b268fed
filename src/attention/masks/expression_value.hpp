// The values of expressions, and arithmetic on them. Operators work on numbers (conditions are 1 and 0) and
// on intervals that contain them.
#pragma once

#include <cmath>

#include "attention/problem/score_rules.hpp"

namespace heed::detail {

/// The numbers from lo to hi, and NaN if `nan`. It may contain more than the values that occur.
struct Interval {
  double lo, hi;
  bool nan;

  [[nodiscard]] bool is_point() const { return lo == hi && !nan; }
};
inline constexpr Interval kAnything{-kInfinity, kInfinity, true};

/// Same result as std::floor, from operations that every processor has for vectors.
inline double floor_of(double x) {
  constexpr double kWhole = 0x1p52;  // doubles of this size and above are whole numbers
  const double nearest = std::copysign((std::fabs(x) + kWhole) - kWhole, x);
  const double below = nearest - (nearest > x ? 1.0 : 0.0);
  return std::fabs(x) < kWhole ? below : x;
}

/// If one operand is NaN, the result is NaN.
inline double minimum_of(double a, double b) { return (b < a || b != b) ? b : a; }
inline double maximum_of(double a, double b) { return (b > a || b != b) ? b : a; }

inline double floor_divide(double a, double b) { return floor_of(a / b); }
inline double modulo_of(double a, double b) { return a - b * floor_of(a / b); }

}  // namespace heed::detail
