// The start of a task: where its rows stand, their queries, and sums of nothing yet.
#pragma once

#include "attention/cpu/kernel/row_statistics.hpp"
#include "attention/cpu/kernel/workspace.hpp"

namespace heed::detail::HEED_ISA {

inline constexpr float kBoundedScore = 40.0f;
inline constexpr float kHeadroom = 8.0f;              // a shift moves when a score exceeds it by more
inline constexpr float kUnstarted = -1.5f * 0x1p20f;  // threshold of a row without keys: above kForbidden
inline constexpr float kNoThreshold = 0x1p30f;        // above every score
inline constexpr float kLargestSquare = 0x1p120f;     // sums of squares from here on are as good as infinite

/// Rows beyond the last, up to a whole tile, repeat its query row and have queries of 0.
inline void pad_rows(TaskState& state) {
  Workspace& w = state.w;
  for (std::int64_t r = state.rows; r < state.padded_rows; ++r) {
    w.query_row[r] = w.query_row[state.rows - 1];
    for (std::int64_t d = 0; d < w.padded_depth; d += kLanes) store(w.query + r * w.padded_depth + d, zero());
  }
}

inline void find_groups(TaskState& state, bool started) {
  for (std::int64_t r = 0; r < state.padded_rows; r += kGroupRows)
    state.w.group[r / kGroupRows] =
        group_of(state.w.query_row + r, smaller(kGroupRows, state.padded_rows - r), started);
}

template <bool kBf16Dot = kHasBf16Dot>
float pack_row(const TaskState& state, std::int64_t at, std::int64_t row) {
  const Workspace& w = state.w;
  float* query = w.query + row * w.padded_depth;
  if constexpr (kBf16Dot) {
    if (state.bf16_dot)
      return pack_query_bf16_dot<kBf16Dot>(state.call.query, at, w.depth, state.call.scale, query,
                                           w.padded_depth);
  }
  return pack_query(state.call.query, at, w.depth, 1.0f, query, w.padded_depth);
}

/// The sum of squares of one query, read where it lies.
inline float square_of(const TaskState& state, std::int64_t at) {
  const float* query = static_cast<const float*>(state.call.query.data) + at;
  Vf squares = zero();
  for (std::int64_t d = 0; d < state.w.depth; d += kLanes) {
    const Vf x = load(query + d);
    squares = mul_add(x, x, squares);
  }
  return reduce_add(squares);
}

/// Leaves a row out of the task: it sees no key from here on, and its group goes by way of memory.
inline void leave_out(TaskState& state, std::int64_t row) {
  Workspace& w = state.w;
  if (row >= state.rows || w.left_out[row] != 0) return;
  w.left_out[row] = 1;
  ++state.left_out;
  w.query_row[row].key_begin = w.query_row[row].key_end = 0;
  w.rows.threshold[row] = kNoThreshold;
  RowGroup& group = w.group[row / kGroupRows];
  group.full_begin = INT64_MAX;
  group.full_end = 0;
}

/// Points state.queries at the caller's memory where tiles can read it, and otherwise packs the rows. Leaves
/// out rows whose query is not finite. Returns the largest sum of squares of the others.
inline float find_queries(TaskState& state) {
  const Arguments& call = state.call;
  const Task& task = state.task;
  Workspace& w = state.w;
  const bool direct = !state.bf16_dot && task.head_count == 1 && state.rows == state.padded_rows &&
                      in_place(call.query, call.head_dim);
  float largest = 0;
  for (std::int64_t r = 0; r < state.rows; ++r) {
    w.left_out[r] = 0;
    const std::int64_t at =
        offset_of(call.query.stride, task.batch, w.query_row[r].head, w.query_row[r].index);
    const float squares = direct ? square_of(state, at) : pack_row(state, at, r);
    w.query_square[r] = squares;
    if (!(squares < kLargestSquare))
      leave_out(state, r);
    else
      largest = squares > largest ? squares : largest;
  }
  state.queries = {w.query, w.padded_depth};
  if (direct)
    state.queries = {static_cast<const float*>(call.query.data) +
                         offset_of(call.query.stride, task.batch, task.head_begin, task.row_begin),
                     call.query.stride[2]};
  return largest;
}

/// Sets up query rows and states of the task's rows.
inline void load_queries(TaskState& state) {
  const Arguments& call = state.call;
  const Task& task = state.task;
  Workspace& w = state.w;
  std::int64_t r = 0;
  for (std::int64_t head = task.head_begin; head < task.head_begin + task.head_count; ++head)
    for (std::int64_t index = task.row_begin; index < task.row_end; ++index, ++r)
      w.query_row[r] = query_row_of(call, task, head, index);
  pad_rows(state);
  for (r = 0; r < state.padded_rows; ++r) {
    w.rows.shift[r] = 0;
    w.rows.threshold[r] = state.tracks_maxima ? kUnstarted : kNoThreshold;
    store(w.rows.sum + r * kLanes, zero());
    if (state.bf16_dot) store(w.rows.rounded + r * kLanes, zero());
  }
  for (r = 0; state.keeps_statistics && r < state.padded_rows; ++r) {
    store(w.rows.entropy + r * kLanes, zero());
    store(w.rows.max + r * kLanes, splat(kForbidden));
  }
  clear_statistics(state);
  for (std::int64_t i = 0; i < state.padded_rows * w.value_columns; i += kLanes) {
    store(w.output + i, zero());
    if (w.step < kKvBlock) store(w.partial + i, zero());
  }
  find_groups(state, !state.tracks_maxima);
}

/// From here on shifts move: rows that have weights keep their shift of 0, and those that have none wait for
/// a key.
inline void track_maxima(TaskState& state) {
  state.tracks_maxima = true;
  count_path(state.call.paths, Path::tracked_late);
  for (std::int64_t r = 0; r < state.padded_rows; ++r) {
    const bool started = reduce_add(load(state.w.rows.sum + r * kLanes)) > 0;
    state.w.rows.threshold[r] = started ? kHeadroom : kUnstarted;
    if (!started) state.w.group[r / kGroupRows].started = false;
  }
}

}  // namespace heed::detail::HEED_ISA
