// Which keys their position leaves to a query row: what the kernels, the reference and reports all go by.
// Kernels for one instruction set share no inline function with code that must run anywhere, so these leave
// no symbol behind.
#pragma once

#include <cstdint>

namespace heed::detail {

/// Keys [begin, end).
struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Of a segment of `keys` keys, counted within it, those that a row at `position` may see:
/// j <= position where `causal`, position - window_left <= j <= position + window_right; -1 leaves a side
/// open. Empty ranges begin where they end.
template <class Rules>
[[gnu::always_inline]] constexpr KeyRange visible_keys(const Rules& rules, std::int64_t position,
                                                       std::int64_t keys) {
  KeyRange range = {0, keys};
  if (rules.causal && range.end > position + 1) range.end = position + 1;
  if (rules.window_right >= 0 && range.end > position + rules.window_right + 1)
    range.end = position + rules.window_right + 1;
  if (rules.window_left >= 0 && range.begin < position - rules.window_left)
    range.begin = position - rules.window_left;
  if (range.end < 0) range.end = 0;
  if (range.begin > range.end) range.begin = range.end;
  return range;
}

/// The position among a segment's keys that is nearest to a row's. ALiBi's distances are taken from it: a row
/// far beyond its keys then has small distances, which floats hold exactly. Weights do not change; lse and
/// scores lack slope * |position - nearest|, which is added to them at the end (alibi_offset).
[[gnu::always_inline]] constexpr std::int64_t nearest_position(std::int64_t position, std::int64_t keys) {
  const std::int64_t last = keys > 0 ? keys - 1 : 0;
  return position < 0 ? 0 : position > last ? last : position;
}

}  // namespace heed::detail
