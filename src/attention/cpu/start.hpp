// The start of a task: where its rows stand, their queries, and sums of nothing yet.
#pragma once

#include "attention/cpu/observers.hpp"
#include "attention/cpu/work.hpp"

namespace heed::detail::HEED_ISA {

inline constexpr float kBoundedScore = 40.0f;
inline constexpr float kHeadroom = 8.0f;              // a shift moves when a score exceeds it by more
inline constexpr float kUnstarted = -1.5f * 0x1p20f;  // threshold of a row without keys: above kForbidden
inline constexpr float kNoThreshold = 0x1p30f;        // above every score
inline constexpr float kLargestSquare = 0x1p120f;     // sums of squares from here on are as good as infinite

/// Rows beyond the last, up to a whole tile, repeat its site and have queries of 0.
inline void pad_rows(Run& run) {
  Work& w = run.w;
  for (std::int64_t r = run.rows; r < run.padded_rows; ++r) {
    w.site[r] = w.site[run.rows - 1];
    for (std::int64_t d = 0; d < w.padded_depth; d += kLanes) store(w.query + r * w.padded_depth + d, zero());
  }
}

inline void find_groups(Run& run, bool started) {
  for (std::int64_t r = 0; r < run.padded_rows; r += kGroupRows)
    run.w.group[r / kGroupRows] = group_of(run.w.site + r, smaller(kGroupRows, run.padded_rows - r), started);
}

template <bool kPairs = kHasPairs>
float pack_row(const Run& run, std::int64_t at, std::int64_t row) {
  const Work& w = run.w;
  float* query = w.query + row * w.padded_depth;
  if constexpr (kPairs) {
    if (run.pairs)
      return pack_query_pairs<kPairs>(run.call.query, at, w.depth, run.call.scale, query, w.padded_depth);
  }
  return pack_query(run.call.query, at, w.depth, 1.0f, query, w.padded_depth);
}

/// The sum of squares of one query, read where it lies.
inline float square_of(const Run& run, std::int64_t at) {
  const float* query = static_cast<const float*>(run.call.query.data) + at;
  Vf squares = zero();
  for (std::int64_t d = 0; d < run.w.depth; d += kLanes) {
    const Vf x = load(query + d);
    squares = mul_add(x, x, squares);
  }
  return reduce_add(squares);
}

/// Leaves a row out of the task: it sees no key from here on, and its group goes by way of memory.
inline void leave_out(Run& run, std::int64_t row) {
  Work& w = run.w;
  if (row >= run.rows || w.left_out[row] != 0) return;
  w.left_out[row] = 1;
  ++run.left_out;
  w.site[row].low = w.site[row].high = 0;
  w.rows.threshold[row] = kNoThreshold;
  Group& group = w.group[row / kGroupRows];
  group.inner_low = INT64_MAX;
  group.inner_high = 0;
}

/// Points run.queries at the caller's memory where tiles can read it, and otherwise packs the rows. Leaves
/// out rows whose query is not finite. Returns the largest sum of squares of the others.
inline float find_queries(Run& run) {
  const Call& call = run.call;
  const Task& task = run.task;
  Work& w = run.w;
  const bool direct = !run.pairs && task.head_count == 1 && run.rows == run.padded_rows &&
                      in_place(call.query, call.head_dim);
  float largest = 0;
  for (std::int64_t r = 0; r < run.rows; ++r) {
    w.left_out[r] = 0;
    const std::int64_t at = offset_of(call.query.stride, task.batch, w.site[r].head, w.site[r].index);
    const float squares = direct ? square_of(run, at) : pack_row(run, at, r);
    w.query_square[r] = squares;
    if (!(squares < kLargestSquare))
      leave_out(run, r);
    else
      largest = squares > largest ? squares : largest;
  }
  run.queries = {w.query, w.padded_depth};
  if (direct)
    run.queries = {static_cast<const float*>(call.query.data) +
                       offset_of(call.query.stride, task.batch, task.head_begin, task.row_begin),
                   call.query.stride[2]};
  return largest;
}

/// Sets up sites and states of the task's rows.
inline void start_rows(Run& run) {
  const Call& call = run.call;
  const Task& task = run.task;
  Work& w = run.w;
  std::int64_t r = 0;
  for (std::int64_t head = task.head_begin; head < task.head_begin + task.head_count; ++head)
    for (std::int64_t index = task.row_begin; index < task.row_end; ++index, ++r)
      w.site[r] = site_of(call, task, head, index);
  pad_rows(run);
  for (r = 0; r < run.padded_rows; ++r) {
    w.rows.shift[r] = 0;
    w.rows.threshold[r] = run.tracked ? kUnstarted : kNoThreshold;
    store(w.rows.sum + r * kLanes, zero());
    if (run.pairs) store(w.rows.rounded + r * kLanes, zero());
  }
  for (r = 0; run.observed && r < run.padded_rows; ++r) {
    store(w.rows.entropy + r * kLanes, zero());
    store(w.rows.max + r * kLanes, splat(kForbidden));
  }
  clear_observed(run);
  for (std::int64_t i = 0; i < run.padded_rows * w.value_columns; i += kLanes) {
    store(w.output + i, zero());
    if (w.step < kChunk) store(w.partial + i, zero());
  }
  find_groups(run, !run.tracked);
}

/// From here on shifts move: rows that have weights keep their shift of 0, and those that have none wait for
/// a key.
inline void start_tracking(Run& run) {
  run.tracked = true;
  count_path(run.call.paths, Path::tracked_late);
  for (std::int64_t r = 0; r < run.padded_rows; ++r) {
    const bool started = reduce_add(load(run.w.rows.sum + r * kLanes)) > 0;
    run.w.rows.threshold[r] = started ? kHeadroom : kUnstarted;
    if (!started) run.w.group[r / kGroupRows].started = false;
  }
}

}  // namespace heed::detail::HEED_ISA
