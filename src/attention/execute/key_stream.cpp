#include "attention/execute/key_stream.hpp"

#include <algorithm>

#include "attention/problem/visible_keys.hpp"

namespace heed::detail {
namespace {

// Rows that each mask query covers.
constexpr std::int64_t kRowsAtOnce = 256;

// Whether sparse masks may allow some row of a segment some of the call's keys [begin, end).
bool masks_leave(const Problem& p, const Segment& s, std::int64_t begin, std::int64_t end) {
  if (p.sparse_masks.empty()) return true;
  for (std::int64_t head = 0; head < p.heads; ++head)
    for (std::int64_t row = s.query_begin; row < s.query_end; row += kRowsAtOnce) {
      const MaskTile tile{s.batch, head, row, std::min(s.query_end, row + kRowsAtOnce), begin, end};
      if (std::ranges::none_of(
              p.sparse_masks, [&](const MaskSource& mask) { return mask.coverage(tile) == Coverage::empty; }))
        return true;
    }
  return false;
}

}  // namespace

bool may_see(const Problem& p, const KeyRange& keys) {
  if (p.heads == 0) return false;
  return std::ranges::any_of(p.segments, [&](const Segment& s) {
    const std::int64_t rows = s.query_end - s.query_begin;
    if (rows == 0) return false;
    // Both ends of a row's range rise with the row.
    const KeyRange first = visible_keys(p, s.offset, s.keys()),
                   last = visible_keys(p, s.offset + rows - 1, s.keys());
    const std::int64_t begin = std::max(keys.begin, s.key_begin + first.begin);
    const std::int64_t end = std::min(keys.end, s.key_begin + last.end);
    return begin < end && masks_leave(p, s, begin, end);
  });
}

}  // namespace heed::detail
