// The score of one query row and one key, formula by formula, in f64. The reference computes rows with it,
// and reports use it for single weights of the matrix.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "attention/problem/elements.hpp"
#include "attention/problem/problem.hpp"
#include "attention/problem/score_formulas.hpp"
#include "attention/problem/visible_keys.hpp"
#include "heed/attention/score_mod.hpp"

namespace heed::detail {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The number type of score_formulas.hpp on doubles.
struct F64Math {
  using Number = double;
  static Number one() { return 1; }
  static Number sub(Number a, Number b) { return a - b; }
  static Number mul(Number a, Number b) { return a * b; }
  static Number div(Number a, Number b) { return a / b; }
  static Number mul_add(Number a, Number b, Number c) { return a * b + c; }
  static Number absolute(Number a) { return std::abs(a); }
  static Number tanh(Number a) { return std::tanh(a); }
};

struct Row {
  std::int64_t batch, head, kv_head;
  std::int64_t i;         ///< index in the query tensor
  std::int64_t position;  ///< p_i, in the key positions of its segment
};

/// |p_i - p_j|
inline double distance_between(const Segment& segment, const Row& row, std::int64_t j) {
  return std::abs(static_cast<double>(row.position - segment.keys().of(j - segment.key_begin)));
}

/// The call without the masks whose loss `masked_mass` measures. Causality, lengths and segments stay.
inline Problem without_masks(const Problem& p) {
  Problem unmasked = p;
  unmasked.mask = {};
  unmasked.sparse_masks.clear();
  unmasked.window_left = unmasked.window_right = -1;
  return unmasked;
}

/// Whether the sparse masks let row i see key j.
inline bool masks_allow(const std::vector<MaskSource>& masks, const Row& row, std::int64_t j) {
  std::uint8_t visible = 1;
  for (const MaskSource& mask : masks) mask.restrict_row(row.batch, row.head, row.i, j, j + 1, &visible);
  return visible != 0;
}

/// The tensor's keys that causality, window and segment allow a row to see.
inline KeyRange seen_keys(const ScoreRules& rules, const Segment& segment, const Row& row) {
  const KeyRange seen = visible_keys(rules, row.position, segment.keys());
  return {segment.key_begin + seen.begin, segment.key_begin + seen.end};
}

/// Whether the masks let row i see key j: causality, window, boolean and sparse masks, and a bias of -inf.
inline bool is_allowed(const Problem& p, const Segment& segment, const Row& row, std::int64_t j) {
  const KeyRange visible = visible_keys(p, row.position, segment.keys());
  if (j - segment.key_begin < visible.begin || j - segment.key_begin >= visible.end) return false;
  if (p.mask && read(p.mask, row.batch, row.head, row.i, j) == 0) return false;
  if (!masks_allow(p.sparse_masks, row, j)) return false;
  return !(p.bias && read(p.bias, row.batch, row.head, row.i, j) == -kInfinity);
}

/// Returns s_ij = softcap * tanh(s_ij / softcap) and its derivative; without a softcap, s_ij and 1.
inline Softcapped<F64Math> capped(const Problem& p, double score) {
  if (p.softcap == 0) return {score, 1};
  return softcapped<F64Math>(score, p.softcap);
}

/// Applies the softcap and then the ScoreMod. Returns the score, -inf if the ScoreMod forbids the key, and
/// the derivative with respect to the raw score.
inline Softcapped<F64Math> modified(const Problem& p, const Row& row, std::int64_t j, double score) {
  Softcapped<F64Math> at = capped(p, score);
  if (!p.score_mod) return at;
  const PartPlace& place = p.score_mod.place;
  double slope = 0;
  static_cast<const ScoreFunction*>(p.score_mod.part)
      ->apply({row.batch + place.batch_begin, row.head + place.head_begin, place.row(row.i), j, j + 1},
              &at.score, &slope);
  at.slope *= slope;
  return at;
}

/// The position among the segment's keys that is nearest to p_i.
inline std::int64_t nearest_position(const Segment& segment, const Row& row) {
  return nearest_position(row.position, segment.keys());
}

/// -slope_h * |p_i - nearest_position|, which `relative_score` omits from every score of the row. For a row
/// far beyond its keys, it would round away the differences of scores, and the softmax depends only on those.
inline double alibi_offset(const Problem& p, const Segment& segment, const Row& row) {
  const std::int64_t gap = row.position - nearest_position(segment, row);
  if (!p.alibi_slopes || gap == 0) return 0;
  return -read(p.alibi_slopes, row.batch, row.head) * std::abs(static_cast<double>(gap));
}

/// c_i - c_j of the decay; the row has at least one key.
inline double decay_between(const Problem& p, const Segment& segment, const Row& row, std::int64_t j) {
  const auto c = [&](std::int64_t at) { return read(p.decay, row.batch, row.head, at); };
  return c(decay_index(p, segment, row.position)) -
         c(segment.key_begin + segment.keys().of(j - segment.key_begin));
}

/// s_ij + bias_ij - slope_h * |p_i - j| + c_i - c_j, minus the row's alibi_offset
inline double relative_score(const Problem& p, const Segment& segment, const Row& row, std::int64_t j,
                             double score) {
  if (p.bias) score = biased<F64Math>(score, read(p.bias, row.batch, row.head, row.i, j), 1);
  if (p.alibi_slopes)
    score = with_alibi<F64Math>(
        score, read(p.alibi_slopes, row.batch, row.head),
        static_cast<double>(nearest_position(segment, row) - segment.keys().of(j - segment.key_begin)));
  if (p.decay) score += decay_between(p, segment, row, j);
  return score;
}

/// s_ij + bias_ij - slope_h * |p_i - j| + c_i - c_j
inline double complete_score(const Problem& p, const Segment& segment, const Row& row, std::int64_t j,
                             double score) {
  return relative_score(p, segment, row, j, score) + alibi_offset(p, segment, row);
}

}  // namespace heed::detail
