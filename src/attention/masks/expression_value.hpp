// The values of expressions, and what each operator makes of them: of numbers one by one (conditions are 1
// and 0), and of intervals that hold them.
#pragma once

#include <cmath>
#include <limits>

namespace heed::detail {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Numbers from lo to hi, and NaN where `nan` says so. It may hold more than the values that occur.
struct Interval {
  double lo, hi;
  bool nan;

  [[nodiscard]] bool is_point() const { return lo == hi && !nan; }
};
inline constexpr Interval kAnything{-kInfinity, kInfinity, true};

/// As std::floor, in operations that every processor has for vectors.
inline double floor_of(double x) {
  constexpr double kWhole = 0x1p52;  // from it on doubles are whole numbers
  const double nearest = std::copysign((std::fabs(x) + kWhole) - kWhole, x);
  const double below = nearest - (nearest > x ? 1.0 : 0.0);
  return std::fabs(x) < kWhole ? below : x;
}

/// Of a NaN and a number: NaN.
inline double minimum_of(double a, double b) { return (b < a || b != b) ? b : a; }
inline double maximum_of(double a, double b) { return (b > a || b != b) ? b : a; }

inline double floor_divide(double a, double b) { return floor_of(a / b); }
inline double modulo_of(double a, double b) { return a - b * floor_of(a / b); }

}  // namespace heed::detail
