// What the rows of a forward pass are cut into: classes of packed sequences, tasks, and the spans of their
// keys.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "attention/call/problem.hpp"
#include "attention/cpu/kernel/arguments.hpp"
#include "attention/rules/visible_keys.hpp"

namespace heed::detail {

/// Rows a key head up to which packed sequences are computed together: by lanes from keys where they lie, in
/// one pass or several; by matrix tiles from such keys; too few for parts by matrix tiles; all others.
inline constexpr std::int64_t kFewRows = 12;
inline constexpr std::array<std::int64_t, 5> kRowClasses{4, kFewRows, 32, 127, INT64_MAX};
/// Work below this many multiply-adds is not worth a second thread.
inline constexpr double kSmallWork = 2e6;
/// Items of work a thread, at least, so that threads end at about the same time.
inline constexpr std::int64_t kItemsPerThread = 4;
/// For the states of spans that threads share.
inline constexpr std::size_t kStateBytes = std::size_t{64} << 20;

/// Also of a part of packed sequences that has the rows of one alone.
inline bool is_packed(const Problem& p) {
  if (p.whole.sequences > 0) return p.whole.sequences != p.whole.batch;
  return static_cast<std::int64_t>(p.segments.size()) != p.batch;
}

/// Packed sequences of few rows have other kernels than long ones: each class of them is a pass of its own.
/// So a row's bits depend on its own sequence alone. Calls pass(segments, rows of the longest).
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

/// Rows of a task a head, and heads that it takes together: all of a key head's where rows are few.
inline std::int64_t rows_per_head(const cpu::Tiling& tiling, const Segment& s) {
  return std::max<std::int64_t>(1, std::min(tiling.rows, s.query_end - s.query_begin));
}
inline std::int64_t heads_per_task(const cpu::Tiling& tiling, const Segment& s, std::int64_t group) {
  return std::clamp<std::int64_t>(tiling.rows / rows_per_head(tiling, s), 1, group);
}

/// The task of rows [row_begin, row_end) of a segment.
inline cpu::Task task_of(const Segment& s, std::int64_t head, std::int64_t head_count, std::int64_t row_begin,
                         std::int64_t row_end) {
  return {s.batch,     head,        head_count, row_begin,
          row_end,     s.key_begin, s.key_end,  s.offset - s.query_begin,
          s.query_end, s.sequence,  s.positions};
}

/// The keys that a task's rows may see. Both ends of what a row sees rise with the rows.
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
