// Compares a kernel's results with the naive computation, element by element, within a bound on rounding.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>

#include "heed/attention/attention.hpp"
#include "naive_attention.hpp"

namespace heed::test {

/// The rounding of a kernel.
struct Rounding {
  double unit = 0x1p-53;   ///< unit roundoff of its scores, exponentials and sums
  double slack = 1;        ///< factor on every bound, if functions err by more than a rounding
  double weight_unit = 0;  ///< unit roundoff of the weights that multiply values, if it is coarser
  double floor = 0;        ///< absolute error allowed to every result: weights below it may be 0
  double storing = 1;      ///< number of roundings to the result's dtype: 2 if an intermediate dtype is used
};

/// Half an ulp of a value that is stored as `dtype`, or half the smallest denormal where it underflows.
inline Real storing_error(DType dtype, Real value) {
  switch (dtype) {
    case DType::f64:
      return 0x1p-53 * std::abs(value) + 0x1p-1074;
    case DType::f32:
      return 0x1p-24 * std::abs(value) + 0x1p-149;
    case DType::f16:
      return 0x1p-11 * std::abs(value) + 0x1p-24;
    default:
      return 0x1p-8 * std::abs(value) + 0x1p-133;
  }
}

/// The smallest number that a dtype rounds to infinity.
inline Real overflow_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return std::numeric_limits<Real>::infinity();
    case DType::f32:
      return 0x1.ffffffp127;
    case DType::f16:
      return 65520;
    default:
      return 0x1.ffp127;
  }
}

/// Counts the rows that were compared. A sum over rows (what a key received, a cell of the map) counts as a
/// row.
struct RowTally {
  std::int64_t rows = 0;         ///< all rows
  std::int64_t loose = 0;        ///< bound beyond first order, so it may check nothing
  std::int64_t fallen_back = 0;  ///< left to the reference by the fused kernel

  void add(bool is_loose, bool fell_back) {
    ++rows;
    loose += is_loose ? 1 : 0;
    fallen_back += fell_back ? 1 : 0;
  }
};

/// Whether the reference computed (batch, head, row) in place of the fused kernel.
using FellBack = std::function<bool(std::int64_t, std::int64_t, std::int64_t)>;

/// From here on, relative errors are no longer first order.
inline constexpr Real kFirstOrder = 0.5;
/// The relative error of a number whose logarithm has the absolute error `error`.
inline Real beyond_first_order(Real error) {
  constexpr Real kMax = 1e100;  // finite, so that its products are not NaN
  return error < kFirstOrder ? error : std::min(std::expm1(error), kMax);
}

/// Compares `result` with `naive`. Returns "" or a text on the first element that is out of bounds.
/// The bounds follow from first-order error analysis. A score is a sum of D products. Its error is at most e
/// = u (D + 3) A, where A is the sum of magnitudes (score_magnitude, which also counts bias, ALiBi and
/// softcap). A weight exp(s - m) / sum then has the relative error r = 2 e + u (Lk + 8). It consists of twice
/// the error of a score, which includes the rounding of s - m (no larger than A), and the error of a sum of
/// Lk terms. The output has the error r * sum_j p |v_j| and the roundings of that sum. Storing adds half an
/// ulp of the result's dtype.
std::string compare_results(const AttentionResult& result, const AttentionOptions& options,
                            const Naive& naive, const Rounding& rounding, RowTally& tally,
                            const FellBack& fell_back = {});

}  // namespace heed::test
