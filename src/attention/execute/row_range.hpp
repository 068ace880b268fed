// Finds the rows that the fused backward pass cannot hold in f32. Used only after the pass has failed.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "attention/problem/elements.hpp"
#include "attention/problem/problem.hpp"
#include "attention/problem/score_rules.hpp"

namespace heed::detail {

/// Norms of the keys and values of one key head and segment. The bounds are slightly below the kernel's
/// (kernels/backward/backward_workspace.hpp), so a row that passes here also passes there.
class KeyHeadRange {
 public:
  KeyHeadRange(const BackwardProblem& problem, const Segment& segment, std::int64_t kv_head)
      : problem_(problem), p_(problem.forward), segment_(segment), kv_head_(kv_head) {
    for (std::int64_t j = segment.key_begin; j < segment.key_end; ++j) {
      const double key =
          kBits * kBits * p_.scale * p_.scale * square(p_.key, segment.batch, kv_head, j, p_.head_dim);
      const double value = square(p_.value, segment.batch, kv_head, j, p_.value_dim);
      if (key < kMaxKeySquare && value < kMaxKeySquare)
        largest_key_ = std::max(largest_key_, key);
      else
        large_keys_.push_back(j);
    }
  }

  /// Whether f32 holds the scores, weights and gradients of row i of a head.
  [[nodiscard]] bool holds(std::int64_t head, std::int64_t i) const {
    const Row row{segment_.batch, head, kv_head_, i, i - segment_.query_begin + segment_.offset};
    const double query = square(p_.query, row.batch, head, i, p_.head_dim);
    const double grad = square(problem_.grad_output, row.batch, head, i, p_.value_dim);
    if (!(query < kMaxRowSquare && grad < kMaxRowSquare)) return false;
    if (!(std::sqrt(query) * std::sqrt(largest_key_) < kMaxScore)) return false;
    if (!(std::abs(delta(row)) < kMaxDelta) || std::isnan(read(problem_.lse, row.batch, head, i)))
      return false;
    for (const std::int64_t j : large_keys_)
      if (is_allowed(p_, segment_, row, j)) return false;
    return holds_terms(row);
  }

 private:
  static constexpr double kBits = std::numbers::log2e;  // scores are in units of log 2
  static constexpr double kMaxKeySquare = 0x1p59;
  static constexpr double kMaxRowSquare = 0x1p50;
  static constexpr double kMaxDelta = 0x1p50;
  static constexpr double kMaxScore = 0x1p18;

  static double square(const Operand& rows, std::int64_t b, std::int64_t h, std::int64_t l,
                       std::int64_t width) {
    double sum = 0;
    for (std::int64_t c = 0; c < width; ++c) {
      const double x = read(rows, b, h, l, c);
      sum += x * x;
    }
    return sum;
  }

  // <dO_i, out_i> - dLse_i
  [[nodiscard]] double delta(const Row& row) const {
    double sum = problem_.grad_lse ? -read(problem_.grad_lse, row.batch, row.head, row.i) : 0;
    for (std::int64_t c = 0; c < p_.value_dim; ++c)
      sum += read(problem_.grad_output, row.batch, row.head, row.i, c) *
             read(problem_.output, row.batch, row.head, row.i, c);
    return sum;
  }

  // Whether bias, ALiBi and decay of the keys that the row sees are in range.
  [[nodiscard]] bool holds_terms(const Row& row) const {
    if (!p_.bias && !p_.alibi_slopes && !p_.decay) return true;
    for (std::int64_t j = segment_.key_begin; j < segment_.key_end; ++j)
      if (is_allowed(p_, segment_, row, j) && !(relative_score(p_, segment_, row, j, 0) < kMaxScore))
        return false;
    return true;
  }

  const BackwardProblem& problem_;
  const Problem& p_;
  const Segment& segment_;
  std::int64_t kv_head_;
  double largest_key_ = 0;                // scaled, squared
  std::vector<std::int64_t> large_keys_;  // keys that are, or whose values are, too large for f32 sums
};

}  // namespace heed::detail
