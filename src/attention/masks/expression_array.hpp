// An array that an expression reads, with fast minima and maxima over any range.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "attention/problem/score_rules.hpp"
#include "heed/tensor.hpp"

namespace heed::detail {

/// The numbers from lo to hi, and NaN if `nan`. It may contain more than the values that occur.
struct Interval {
  double lo, hi;
  bool nan;

  [[nodiscard]] bool is_point() const { return lo == hi && !nan; }
};

inline constexpr Interval kAnything{-kInfinity, kInfinity, true};

// Same result as std::floor, from operations that every processor has for vectors.
inline double floor_of(double x) {
  constexpr double kWhole = 0x1p52;  // doubles of this size and above are whole numbers
  const double nearest = std::copysign((std::fabs(x) + kWhole) - kWhole, x);
  const double below = nearest - (nearest > x ? 1.0 : 0.0);
  return std::fabs(x) < kWhole ? below : x;
}

// If one operand is NaN, the result is NaN.
inline double minimum_of(double a, double b) { return (b < a || b != b) ? b : a; }

inline double maximum_of(double a, double b) { return (b > a || b != b) ? b : a; }

inline double floor_divide(double a, double b) { return floor_of(a / b); }

inline double modulo_of(double a, double b) { return a - b * floor_of(a / b); }

class ExpressionArray {
 public:
  /// `values` must have one axis. Throws Error (invalid_argument) for an integer that double cannot
  /// represent.
  ExpressionArray(std::string name, const TensorView& values);

  ExpressionArray(ExpressionArray&&) = default;
  ExpressionArray& operator=(ExpressionArray&&) = default;

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] const double* data() const { return data_; }
  [[nodiscard]] bool is_boolean() const { return is_boolean_; }
  /// Whether all elements are whole numbers.
  [[nodiscard]] bool is_whole() const { return is_whole_; }
  /// Returns an interval that contains elements [begin, end); 0 <= begin < end <= size().
  [[nodiscard]] Interval range(std::int64_t begin, std::int64_t end) const;
  [[nodiscard]] std::size_t bytes() const;

 private:
  struct Extremes {
    double least, greatest;
    void join(const Extremes& other);
  };
  [[nodiscard]] Extremes extremes(std::int64_t begin, std::int64_t end) const;
  void build_levels();

  std::string name_;
  Tensor values_;  // f64
  const double* data_;
  std::int64_t size_;
  /// levels_[l][n] covers the 2^l blocks from block n on.
  std::vector<std::vector<Extremes>> levels_;
  bool is_boolean_ = false;
  bool is_whole_ = true;
  bool has_nan_ = false;
};

}  // namespace heed::detail
