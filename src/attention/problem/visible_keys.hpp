// The keys that position allows a query row to see: one rule for the kernels, the reference and reports.
// Kernels for one instruction set must share no inline function with code that runs anywhere, so these
// functions leave no symbol.
#pragma once

#include <cstdint>

namespace heed::detail {

/// Keys [begin, end).
struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Positions of a segment's keys. Key j stands at j, or at positions[j], which ascend. The keys of a cache
/// that has evicted rows have such positions.
struct KeyPositions {
  std::int64_t keys = 0;
  const std::int64_t* positions = nullptr;

  [[nodiscard, gnu::always_inline]] constexpr std::int64_t of(std::int64_t j) const {
    return positions != nullptr ? positions[j] : j;
  }
  /// Number of keys before `position`.
  [[nodiscard, gnu::always_inline]] constexpr std::int64_t before(std::int64_t position) const {
    if (positions == nullptr) return position < 0 ? 0 : position < keys ? position : keys;
    std::int64_t begin = 0, end = keys;
    while (begin < end) {
      const std::int64_t middle = begin + (end - begin) / 2;
      if (positions[middle] < position)
        begin = middle + 1;
      else
        end = middle;
    }
    return begin;
  }
};

/// The range of a segment's keys, counted within it, that a row at `position` may see:
/// p_j <= position if `causal`, position - window_left <= p_j <= position + window_right; -1 leaves a side
/// open. An empty range begins where it ends.
template <class Rules>
[[gnu::always_inline]] constexpr KeyRange visible_keys(const Rules& rules, std::int64_t position,
                                                       const KeyPositions& keys) {
  KeyRange range = {0, keys.keys};
  if (rules.causal) range.end = keys.before(position + 1);
  if (rules.window_right >= 0) {
    const std::int64_t end = keys.before(position + rules.window_right + 1);
    if (range.end > end) range.end = end;
  }
  if (rules.window_left >= 0) range.begin = keys.before(position - rules.window_left);
  if (range.begin > range.end) range.begin = range.end;
  return range;
}

/// The position among a segment's keys that is nearest to the row's. ALiBi measures distances from it, so a
/// row far beyond its keys still has small distances, which floats hold exactly. Weights do not change. lse
/// and scores lack slope * |position - nearest|, which is added at the end (alibi_offset).
[[gnu::always_inline]] constexpr std::int64_t nearest_position(std::int64_t position,
                                                               const KeyPositions& keys) {
  const std::int64_t first = keys.keys > 0 ? keys.of(0) : 0;
  const std::int64_t last = keys.keys > 0 ? keys.of(keys.keys - 1) : 0;
  return position < first ? first : position > last ? last : position;
}

/// Returns the index of a row's position in ScoreRules::decay, clamped to the positions of its batch entry or
/// packed sequence. `row_keys` has key_begin and key_end. Key j has index key_begin + p_j.
template <class Rules, class Keys>
[[gnu::always_inline]] constexpr std::int64_t decay_index(const Rules& rules, const Keys& row_keys,
                                                          std::int64_t position) {
  const std::int64_t first = rules.decay_length > 0 ? 0 : row_keys.key_begin;
  const std::int64_t last = rules.decay_length > 0 ? rules.decay_length - 1 : row_keys.key_end - 1;
  const std::int64_t at = row_keys.key_begin + position;
  return at > last ? last : at < first ? first : at;
}

}  // namespace heed::detail
