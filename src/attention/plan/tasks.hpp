// Division of a forward pass's rows into classes of packed sequences, tasks, and spans of their keys.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "attention/kernels/shared/arguments.hpp"
#include "attention/problem/problem.hpp"
#include "attention/problem/visible_keys.hpp"

namespace heed::detail {

/// Upper limits of the row classes of packed sequences, in rows per key head. Sequences of a class are
/// computed together. Class by class: lanes and keys in place, in one pass or in several; matrix tiles and
/// keys in place; too few rows for matrix tiles with several parts; all others.
inline constexpr std::int64_t kFewRows = 12;
inline constexpr std::array<std::int64_t, 5> kRowClasses{4, kFewRows, 32, 127, INT64_MAX};
/// Work of fewer multiply-adds than this is not worth a second thread.
inline constexpr double kSmallWork = 2e6;
/// Least number of work items per thread, so that threads end at about the same time.
inline constexpr std::int64_t kItemsPerThread = 4;
/// Memory limit for the states of spans that threads share.
inline constexpr std::size_t kStateBytes = std::size_t{64} << 20;

/// Also true for a part of packed sequences that has the rows of only one.
inline bool is_packed(const Problem& p) {
  if (p.whole.sequences > 0) return p.whole.sequences != p.whole.batch;
  return std::ssize(p.segments) != p.batch;
}

/// Packed sequences of few rows use other kernels than long ones, so each class is a pass of its own. A row's
/// bits therefore depend on its own sequence alone. Calls pass(segments, rows of the longest).
template <class Pass>
void for_each_row_class(const Problem& p, std::int64_t group, Pass pass) {
  std::int64_t above = -1;
  for (const std::int64_t most : kRowClasses) {
    std::vector<Segment> segments;
    std::int64_t most_rows = 0;
    for (const Segment& s : p.segments) {
      const std::int64_t rows = s.rows_of_whole();
      if (rows * group <= above || rows * group > most) continue;
      segments.push_back(s);
      most_rows = std::max(most_rows, rows);
    }
    if (!segments.empty()) pass(segments, most_rows);
    above = most;
  }
}

/// Rows per head of a task, and heads per task. If rows are few, a task takes all heads of a key head.
inline std::int64_t rows_per_head(const cpu::Tiling& tiling, const Segment& s) {
  return std::max<std::int64_t>(1, std::min(tiling.rows, s.query_end - s.query_begin));
}
inline std::int64_t heads_per_task(const cpu::Tiling& tiling, const Segment& s, std::int64_t group) {
  return std::clamp<std::int64_t>(tiling.rows / rows_per_head(tiling, s), 1, group);
}

inline cpu::Task task_of(const Segment& s, std::int64_t head, std::int64_t head_count, std::int64_t row_begin,
                         std::int64_t row_end) {
  return {s.batch,     head,        head_count, row_begin,
          row_end,     s.key_begin, s.key_end,  s.offset - s.query_begin,
          s.query_end, s.sequence,  s.positions};
}

/// The keys that a task's rows may see. Both ends of a row's range rise with the row's index.
inline KeyRange seen_keys(const Problem& p, const cpu::Task& task) {
  const KeyPositions keys = {task.key_end - task.key_begin, task.positions};
  return {visible_keys(p, task.row_begin + task.position_offset, keys).begin,
          visible_keys(p, task.row_end - 1 + task.position_offset, keys).end};
}

/// The spans [begin, end) of these keys.
inline KeyRange spans_of(const Problem& p, const cpu::Task& task) {
  const KeyRange seen = seen_keys(p, task);
  const std::int64_t begin = seen.begin / cpu::kSpan;
  return {begin, std::max(begin, (seen.end + cpu::kSpan - 1) / cpu::kSpan)};
}

}  // namespace heed::detail
