#include "compare_results.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace heed::test {

namespace {

class ResultComparison {
 public:
  ResultComparison(const AttentionOptions& options, const Naive& naive, const Rounding& rounding,
                   RowTally& tally, const FellBack& fell_back)
      : options_(options), naive_(naive), rounding_(rounding), tally_(tally) {
    for (Index b = 0; b < naive.batch; ++b)
      for (Index h = 0; h < naive.heads; ++h)
        for (Index i = 0; i < naive.queries; ++i) {
          const Real error = exponent_error(b, h, i);
          rows_.push_back(
              {beyond_first_order(error), !(error < kFirstOrder), fell_back && fell_back(b, h, i)});
        }
  }

  std::string operator()(const AttentionResult& result) {
    compare_scores(result);
    compare_rows(result);
    compare_sums(result);
    compare_top_k(result);
    count_rows();
    return failure_;
  }

 private:
  using Index = std::int64_t;

  Real score_error(Real magnitude) const {
    return rounding_.slack * rounding_.unit * static_cast<Real>(2 * (naive_.head_dim + 3)) * magnitude;
  }
  // The error of the logarithm of a row's weights.
  Real exponent_error(Index b, Index h, Index i) const {
    return 2 * score_error(naive_.row_magnitude(b, h, i)) +
           rounding_.slack * rounding_.unit * static_cast<Real>(naive_.keys + 8);
  }

  // Each comparison with an element of a row needs these.
  struct Row {
    Real weight_error;
    bool is_loose, fell_back;
  };
  const Row& row(Index b, Index h, Index i) const {
    return rows_[static_cast<std::size_t>((b * naive_.heads + h) * naive_.queries + i)];
  }
  Real weight_error(Index b, Index h, Index i) const { return row(b, h, i).weight_error; }

  bool is_seen(Index b, Index h, Index i, Index j) const {
    return naive_.final_scores(b, h, i, j) != kMinusInfinity;
  }

  // Counts rows, and sums over rows.
  void count_rows() {
    const int received = (has(options_.need, Need::received) ? 1 : 0) + (options_.received_last > 0 ? 1 : 0);
    for (Index b = 0; b < naive_.batch; ++b)
      for (Index h = 0; h < naive_.heads; ++h) {
        for (Index i = 0; i < naive_.queries; ++i) tally_.add(row(b, h, i).is_loose, row(b, h, i).fell_back);
        if (received > 0) count_keys(b, h, received);
        bool any_loose = false, any_fell_back = false;
        for (Index i = 0; i < naive_.queries; ++i) {
          any_loose = any_loose || row(b, h, i).is_loose;
          any_fell_back = any_fell_back || row(b, h, i).fell_back;
        }
        for (Index bin = 0; bin < options_.map.rows * options_.map.columns; ++bin)
          tally_.add(any_loose, any_fell_back);
      }
  }
  // Counts the sums of each key, `times` results of them. A sum has the rows that see its key.
  void count_keys(Index b, Index h, int times) {
    const auto keys = static_cast<std::size_t>(naive_.keys);
    std::vector<bool> any_loose(keys), any_fell_back(keys);
    for (Index i = 0; i < naive_.queries; ++i) {
      const Row& one = row(b, h, i);
      for (Index j = 0; (one.is_loose || one.fell_back) && j < naive_.keys; ++j) {
        if (!is_seen(b, h, i, j)) continue;
        const auto at = static_cast<std::size_t>(j);
        any_loose[at] = any_loose[at] || one.is_loose;
        any_fell_back[at] = any_fell_back[at] || one.fell_back;
      }
    }
    for (std::size_t j = 0; j < keys; ++j)
      for (int n = 0; n < times; ++n) tally_.add(any_loose[j], any_fell_back[j]);
  }
  static Real product(Real error, Real magnitude) { return magnitude == 0 ? 0 : error * magnitude; }

  void check(const char* name, const TensorView& tensor, std::array<Index, 4> at, Real expected, Real bound) {
    if (!failure_.empty()) return;
    const Real got = naive_element(tensor, at);
    if (std::isnan(expected) ? std::isnan(got) : got == expected) return;
    const Real allowed =
        bound + rounding_.storing * storing_error(tensor.dtype(), expected) + rounding_.floor;
    if (std::isfinite(expected) && std::isfinite(got) && std::abs(got - expected) <= allowed) return;
    const bool may_overflow = std::abs(expected) + allowed >= overflow_of(tensor.dtype());
    if (may_overflow && std::isinf(got) && std::signbit(got) == std::signbit(expected)) return;
    std::ostringstream text;
    text.precision(17);
    text << name << "[" << at[0] << ", " << at[1] << ", " << at[2] << ", " << at[3] << "] is " << got << "; "
         << expected << " +- " << allowed << " is expected";
    failure_ = text.str();
  }

  // Compares every element of a result with a cube. A result per row or per key has its index in axes 1 to 3.
  template <class Bound>
  void check_all(const char* name, const Tensor& tensor, const Cube& cube, bool has_last_axis, Bound bound) {
    if (tensor.count() != static_cast<Index>(cube.values.size()) && failure_.empty())
      failure_ = std::string(name) + " has shape " + to_string(tensor.shape());
    if (!failure_.empty()) return;
    const TensorView view = tensor;
    for (Index a = 0; a < cube.shape[0]; ++a)
      for (Index b = 0; b < cube.shape[1]; ++b)
        for (Index c = 0; c < cube.shape[2]; ++c)
          for (Index d = 0; d < cube.shape[3]; ++d) {
            const std::array<Index, 4> at =
                has_last_axis ? std::array<Index, 4>{a, b, c, d} : std::array<Index, 4>{0, a, b, c};
            check(name, view, at, cube(a, b, c, d), bound(a, b, c, d));
          }
  }

  void compare_scores(const AttentionResult& result) {
    if (has(options_.need, Need::scores))
      check_all("scores", result.scores, naive_.scores, true, [&](Index b, Index h, Index i, Index j) {
        return score_error(naive_.score_magnitude(b, h, i, j));
      });
    if (has(options_.need, Need::weights))
      check_all("weights", result.weights, naive_.weights, true, [&](Index b, Index h, Index i, Index j) {
        return product(weight_error(b, h, i), naive_.weights(b, h, i, j));
      });
  }

  void compare_rows(const AttentionResult& result) {
    check_all("output", result.output, naive_.output, true, [&](Index b, Index h, Index i, Index c) {
      // Rounded weights change a mean twice: through its sum, and through the sum of weights that divides it.
      return product(weight_error(b, h, i) + 2 * static_cast<Real>(rounding_.weight_unit),
                     naive_.output_magnitude(b, h, i, c));
    });
    const auto logarithm = [&](Index b, Index h, Index i, Index) {
      const Real size = std::isinf(naive_.lse(b, h, i)) ? 0 : std::abs(naive_.lse(b, h, i));
      return weight_error(b, h, i) + rounding_.slack * rounding_.unit * 2 * size;
    };
    const auto of_score = [&](Index b, Index h, Index i, Index) {
      const Real size = std::isinf(naive_.max_score(b, h, i)) ? 0 : std::abs(naive_.max_score(b, h, i));
      return score_error(naive_.row_magnitude(b, h, i)) + rounding_.slack * rounding_.unit * 2 * size;
    };
    // A relative error r of the weights changes -p log p by at most r p (|log p| + 1).
    const auto of_entropy = [&](Index b, Index h, Index i, Index) {
      return weight_error(b, h, i) * (naive_.entropy(b, h, i) + 1);
    };
    const auto of_distance = [&](Index b, Index h, Index i, Index) {
      return product(weight_error(b, h, i), naive_.distance(b, h, i));
    };
    if (has(options_.need, Need::lse)) check_all("lse", result.lse, naive_.lse, false, logarithm);
    if (has(options_.need, Need::max_score))
      check_all("max_score", result.max_score, naive_.max_score, false, of_score);
    if (has(options_.need, Need::entropy))
      check_all("entropy", result.entropy, naive_.entropy, false, of_entropy);
    if (has(options_.need, Need::distance))
      check_all("distance", result.distance, naive_.distance, false, of_distance);
  }

  // The errors of the weights that each key received.
  Cube errors_of_keys() const {
    Cube errors(naive_.batch, naive_.heads, naive_.keys, 1);
    for (Index b = 0; b < naive_.batch; ++b)
      for (Index h = 0; h < naive_.heads; ++h)
        for (Index i = 0; i < naive_.queries; ++i)
          for (Index j = 0; j < naive_.keys; ++j)
            errors(b, h, j) += product(weight_error(b, h, i), naive_.weights(b, h, i, j));
    return errors;
  }

  // A sum over rows has the error of each row and the roundings of a sum of Lq terms. A map cell has at most
  // the error of its worst row.
  void compare_sums(const AttentionResult& result) {
    const Real roundings = rounding_.slack * rounding_.unit * static_cast<Real>(naive_.queries + naive_.keys);
    const bool received = has(options_.need, Need::received);
    const Cube of_rows = received || options_.received_last > 0 ? errors_of_keys() : Cube();
    const auto of_key = [&](const Cube& sums) {
      return [&](Index b, Index h, Index j, Index) {
        return product(roundings, sums(b, h, j)) + of_rows(b, h, j);
      };
    };
    const auto of_cell = [&](Index b, Index h, Index row, Index column) {
      Real worst = 0;
      for (Index i = 0; i < naive_.queries; ++i) worst = std::max(worst, weight_error(b, h, i));
      return product(worst + roundings, naive_.map(b, h, row, column));
    };
    if (received) check_all("received", result.received, naive_.received, false, of_key(naive_.received));
    if (options_.received_last > 0)
      check_all("received_last", result.received_last, naive_.received_last, false,
                of_key(naive_.received_last));
    if (options_.map.rows > 0) check_all("map", result.map, naive_.map, true, of_cell);
  }

  // Checks that the k-th weight is the k-th largest and belongs to the index beside it. Indices must be
  // allowed and distinct. Where weights are NaN, nothing is ranked.
  void compare_top_k(const AttentionResult& result) {
    if (options_.top_k == 0) return;
    const TensorView weights = result.top_k_weight, indices = result.top_k_index;
    for (Index b = 0; b < naive_.batch; ++b)
      for (Index h = 0; h < naive_.heads; ++h)
        for (Index i = 0; i < naive_.queries; ++i) compare_top_k_row(weights, indices, b, h, i);
  }
  void compare_top_k_row(const TensorView& weights, const TensorView& indices, Index b, Index h, Index i) {
    std::vector<Real> sorted;
    for (Index j = 0; j < naive_.keys; ++j)
      if (naive_.final_scores(b, h, i, j) != kMinusInfinity && !std::isnan(naive_.lse(b, h, i)))
        sorted.push_back(naive_.weights(b, h, i, j));
    const Real beyond = std::isnan(naive_.lse(b, h, i)) ? naive_.lse(b, h, i) : 0;
    std::sort(sorted.rbegin(), sorted.rend());
    std::vector<bool> seen(static_cast<std::size_t>(naive_.keys), false);
    for (Index k = 0; k < options_.top_k && failure_.empty(); ++k) {
      const auto j = static_cast<Index>(naive_element(indices, {b, h, i, k}));
      const bool filled = k < static_cast<Index>(sorted.size());
      const Real expected = filled ? sorted[static_cast<std::size_t>(k)] : beyond;
      check("top_k_weight", weights, {b, h, i, k}, expected, product(weight_error(b, h, i), expected));
      const bool fits = filled ? j >= 0 && j < naive_.keys && !seen[static_cast<std::size_t>(j)] &&
                                     naive_.final_scores(b, h, i, j) != kMinusInfinity
                               : j == -1;
      if (!fits && failure_.empty())
        failure_ = "top_k_index[" + std::to_string(b) + ", " + std::to_string(h) + ", " + std::to_string(i) +
                   ", " + std::to_string(k) + "] is " + std::to_string(j);
      if (!fits || !filled) continue;
      seen[static_cast<std::size_t>(j)] = true;
      check("top_k_weight (of its index)", weights, {b, h, i, k}, naive_.weights(b, h, i, j),
            product(weight_error(b, h, i), naive_.weights(b, h, i, j)));
    }
  }

  const AttentionOptions& options_;
  const Naive& naive_;
  Rounding rounding_;
  RowTally& tally_;
  std::vector<Row> rows_;  // [B * H * Lq]
  std::string failure_;
};

}  // namespace

std::string compare_results(const AttentionResult& result, const AttentionOptions& options,
                            const Naive& naive, const Rounding& rounding, RowTally& tally,
                            const FellBack& fell_back) {
  return ResultComparison(options, naive, rounding, tally, fell_back)(result);
}

}  // namespace heed::test
