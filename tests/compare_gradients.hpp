// Compares gradients with the naive computation, element by element, within a bound on rounding.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>

#include "backward_call.hpp"
#include "compare_results.hpp"
#include "naive_backward.hpp"

namespace heed::test {

/// Sums a cube along the axes where `size` is 1.
inline Cube summed_to(const Cube& cube, std::array<std::int64_t, 4> size) {
  Cube sum(size[0], size[1], size[2], size[3]);
  const auto at = [&](std::size_t axis, std::int64_t index) { return size[axis] == 1 ? 0 : index; };
  for (std::int64_t a = 0; a < cube.shape[0]; ++a)
    for (std::int64_t b = 0; b < cube.shape[1]; ++b)
      for (std::int64_t c = 0; c < cube.shape[2]; ++c)
        for (std::int64_t d = 0; d < cube.shape[3]; ++d)
          sum(at(0, a), at(1, b), at(2, c), at(3, d)) += cube(a, b, c, d);
  return sum;
}

/// The last four axes of a shape; missing axes have size 1.
inline std::array<std::int64_t, 4> four_axes(const Dims& shape) {
  std::array<std::int64_t, 4> four{1, 1, 1, 1};
  for (int axis = 0; axis < shape.size(); ++axis)
    four[static_cast<std::size_t>(axis + 4 - shape.size())] = shape[axis];
  return four;
}

/// Compares gradients with the naive ones. Returns "" or a text on the first element that is out of bounds.
///
/// Bounds, to first order: a row's weights have the relative error r = 2 e + u (Lk + 8), with e = u (D + 3) A
/// as in compare_results.hpp. dS = p (dP - D + dLse) then has a relative error of at most 3 r + u (2 Dv + Lk
/// + 8) of its magnitude: r from p, 2 r from the p in D, and the roundings of sums of Dv and Lk terms. The
/// slope of a softcap is a difference from 1 whose argument has the error e / softcap. Sums over rows and
/// keys add u times their length. Rounding::weight_unit is the additional error of D.
class GradientComparison {
 public:
  GradientComparison(const BackwardCall& made, const Rounding& rounding, RowTally& tally, FellBack fell_back)
      : made_(made),
        naive_(made.naive),
        rounding_(rounding),
        tally_(tally),
        fell_back_(std::move(fell_back)),
        expected_(expected()) {}

  std::string operator()(const AttentionGradients& gradients) {
    count_rows();
    check("dQ", gradients.query, expected_.query, expected_.query_magnitude);
    check("dK", gradients.key, expected_.key, expected_.key_magnitude);
    check("dV", gradients.value, expected_.value, expected_.value_magnitude);
    if (made_.request.bias) {
      const auto size = four_axes(gradients.bias.shape());
      check("dBias", gradients.bias, summed_to(expected_.scores, size),
            summed_to(expected_.scores_magnitude, size));
    }
    if (made_.request.sinks) {
      const std::array<std::int64_t, 4> size{1, gradients.sinks.count(), 1, 1};
      check("dSinks", gradients.sinks, summed_to(expected_.sinks, size),
            summed_to(expected_.sinks_magnitude, size));
    }
    return failure_;
  }

 private:
  using Index = std::int64_t;

  // The relative error of every term of a row.
  Real relative_error(Index b, Index h, Index i) const {
    const auto u = static_cast<Real>(rounding_.slack * rounding_.unit);
    const Real score = u * static_cast<Real>(2 * (naive_.head_dim + 3)) * naive_.row_magnitude(b, h, i);
    const auto keys = static_cast<Real>(naive_.keys),
               queries = static_cast<Real>(naive_.queries * naive_.heads);
    const Real weight = 2 * score + u * (keys + 8);
    const auto softcap = static_cast<Real>(made_.call.options.softcap);
    const Real slope = softcap > 0 ? 2 * score / softcap + 4 * u : 0;
    return 3 * weight + slope +
           u * (static_cast<Real>(2 * naive_.value_dim + naive_.head_dim) + 2 * keys + queries + 8) +
           static_cast<Real>(rounding_.weight_unit);
  }
  bool is_loose(Index b, Index h, Index i) const { return !(relative_error(b, h, i) < kFirstOrder); }
  bool fell_back(Index b, Index h, Index i) const { return fell_back_ && fell_back_(b, h, i); }

  // The naive gradients, from an earlier comparison whose rows may err as much if there was one.
  const NaiveGradients& expected() const {
    const Cube errors = row_errors();
    for (const ExpectedGradients& known : made_.expected)
      if (known.row_errors == errors.values) return known.gradients;
    return made_.expected
        .emplace_back(ExpectedGradients{
            errors.values, naive_backward(made_.inputs, made_.call.options, made_.naive, errors)})
        .gradients;
  }
  Cube row_errors() const {
    Cube errors(naive_.batch, naive_.heads, naive_.queries, 1);
    for_each_row(
        [&](Index b, Index h, Index i) { errors(b, h, i) = beyond_first_order(relative_error(b, h, i)); });
    return errors;
  }
  template <class Visit>
  void for_each_row(Visit visit) const {
    for (Index b = 0; b < naive_.batch; ++b)
      for (Index h = 0; h < naive_.heads; ++h)
        for (Index i = 0; i < naive_.queries; ++i) visit(b, h, i);
  }

  // Counts query rows, and for each query head its key rows, which sum over the rows that see them.
  void count_rows() {
    Cube loose(naive_.batch, naive_.heads, naive_.keys, 1), given_up = loose;
    for_each_row([&](Index b, Index h, Index i) {
      const bool row_is_loose = is_loose(b, h, i), row_fell_back = fell_back(b, h, i);
      tally_.add(row_is_loose, row_fell_back);
      for (Index j = 0; (row_is_loose || row_fell_back) && j < naive_.keys; ++j) {
        if (naive_.final_scores(b, h, i, j) == kMinusInfinity) continue;
        if (row_is_loose) loose(b, h, j) = 1;
        if (row_fell_back) given_up(b, h, j) = 1;
      }
    });
    for (std::size_t n = 0; n < loose.values.size(); ++n)
      tally_.add(loose.values[n] != 0, given_up.values[n] != 0);
  }

  void check(const char* name, const Tensor& got, const Cube& expected, const Cube& allowed_error) {
    if (!failure_.empty()) return;
    if (got.count() != static_cast<Index>(expected.values.size())) {
      failure_ = std::string(name) + " has shape " + to_string(got.shape());
      return;
    }
    const Tensor wide = Tensor::copy_of(got, DType::f64);
    for (std::size_t n = 0; n < expected.values.size() && failure_.empty(); ++n) {
      const Real value = expected.values[n];
      const Real allowed =
          allowed_error.values[n] + storing_error(got.dtype(), value) + static_cast<Real>(rounding_.floor);
      const auto element = static_cast<Real>(wide.values<double>()[n]);
      if (std::isfinite(element) && std::abs(element - value) <= allowed) continue;
      const bool may_overflow = std::abs(value) + allowed >= overflow_of(got.dtype());
      if (may_overflow && std::isinf(element) && std::signbit(element) == std::signbit(value)) continue;
      std::ostringstream text;
      text.precision(17);
      text << name << " of shape " << to_string(got.shape()) << " is " << element << " at element " << n
           << "; " << value << " +- " << allowed << " is expected";
      failure_ = text.str();
    }
  }

  const BackwardCall& made_;
  const Naive& naive_;
  Rounding rounding_;
  RowTally& tally_;
  FellBack fell_back_;
  const NaiveGradients& expected_;  // its magnitudes are the possible error of each element
  std::string failure_;
};

inline std::string compare_gradients(const BackwardCall& made, const AttentionGradients& gradients,
                                     const Rounding& rounding, RowTally& tally, FellBack fell_back = {}) {
  return GradientComparison(made, rounding, tally, std::move(fell_back))(gradients);
}

}  // namespace heed::test
