#include "distributed/cells.hpp"

#include <algorithm>

namespace heed::distributed {
namespace {

constexpr std::int64_t kFar = std::int64_t{1} << 33;  // beyond every position

// The sum of clamp(m, 0, width) over all m < n.
std::int64_t sum_of_clamped(std::int64_t n, std::int64_t width) {
  if (n <= 0) return 0;
  const std::int64_t rising = std::min(n, width);
  return rising * (rising - 1) / 2 + (n - rising) * width;
}

// The number of keys before position + shift, summed over the queries.
std::int64_t cells_before(std::int64_t shift, PositionRange positions, PositionRange keys) {
  const std::int64_t width = keys.end - keys.begin;
  return sum_of_clamped(positions.end + shift - keys.begin, width) -
         sum_of_clamped(positions.begin + shift - keys.begin, width);
}

}  // namespace

std::int64_t Visibility::cells(PositionRange queries, PositionRange keys) const {
  if (queries.begin >= queries.end || keys.begin >= keys.end) return 0;
  const std::int64_t rows = queries.end - queries.begin;
  const PositionRange positions = {queries.begin + offset, queries.end + offset};
  std::int64_t cells = rows * (keys.end - keys.begin);
  if (causal || window.right >= 0) cells = cells_before(causal ? 1 : window.right + 1, positions, keys);
  if (window.left >= 0) cells -= cells_before(-window.left, positions, keys);
  return cells;
}

std::int64_t Visibility::cells(std::span<const PositionRange> queries, PositionRange keys) const {
  std::int64_t sum = 0;
  for (const PositionRange& range : queries) sum += cells(range, keys);
  return sum;
}

PositionRange Visibility::seen(PositionRange queries, std::int64_t length) const {
  const std::int64_t right = causal ? 0 : window.right >= 0 ? window.right : kFar;
  const std::int64_t left = window.left >= 0 ? window.left : kFar;
  const std::int64_t begin = std::clamp<std::int64_t>(queries.begin + offset - left, 0, length);
  const std::int64_t end = std::clamp<std::int64_t>(queries.end + offset + right, 0, length);
  return {begin, std::max(begin, end)};
}

}  // namespace heed::distributed
