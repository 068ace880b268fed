// The start of a task: positions and queries of its rows. The start of a span: empty states.
#pragma once

#include "attention/kernels/softmax/row_statistics.hpp"
#include "attention/kernels/softmax/workspace.hpp"

namespace heed::detail::HEED_ISA {

inline constexpr std::int64_t kQueriesAhead = 32;  // rows that matrix tiles prefetch before they are packed
inline constexpr float kMaxSquare = 0x1p120f;      // sums of squares from here on count as infinite

/// Returns the address of vector `lane` / kLanes of a packed query. Packed queries are rows; for matrix
/// tiles, rows of tiles.
HEED_INLINE float* query_vector(const Workspace& w, std::int64_t row, std::int64_t lane) {
  if (!kHasMatrixTiles) return w.query + row * w.query_lanes + lane;
  return w.query + row / kMatrixRows * (kMatrixRows * w.query_lanes) + lane * kMatrixRows +
         row % kMatrixRows * kLanes;
}

/// Rows beyond the last one, up to a whole tile, repeat its query row and have queries of 0.
inline void pad_rows(const TaskState& state) {
  const Workspace& w = state.w;
  for (std::int64_t r = state.rows; r < state.padded_rows; ++r) {
    w.query_row[r] = w.query_row[state.rows - 1];
    for (std::int64_t d = 0; d < w.query_lanes; d += kLanes) store(query_vector(w, r, d), zero());
  }
}

/// Packs a row's query. Returns the scaled query's sum of squares.
template <class Format>
float load_query(const TaskState& state, std::int64_t row, std::int64_t at) {
  const Workspace& w = state.w;
  const auto pack = [&](auto... spacing) {
    return Format::pack_query(state.call.query, at, w.depth, state.call.log2_scale, query_vector(w, row, 0),
                              w.query_lanes, spacing...);
  };
  if constexpr (Format::kMatrixTiles)
    return pack(kMatrixRows * kLanes);
  else
    return pack();
}

inline void find_groups(const TaskState& state, bool started) {
  for (std::int64_t r = 0; r < state.padded_rows; r += kGroupRows)
    state.w.group[r / kGroupRows] =
        group_of(state.w.query_row + r, smaller(kGroupRows, state.padded_rows - r), started);
}

/// The sum of squares of one query, read in place.
inline float square_of(const TaskState& state, std::int64_t at) {
  const float* query = static_cast<const float*>(state.call.query.data) + at;
  Vf squares = zero();
  for (std::int64_t d = 0; d < state.w.depth; d += kLanes) {
    const Vf x = load(query + d);
    squares = mul_add(x, x, squares);
  }
  return reduce_add(squares);
}

/// Leaves a row out of the task. From here on it sees no key, and no panel is whole for its group.
inline void leave_out(TaskState& state, std::int64_t row) {
  const Workspace& w = state.w;
  if (row >= state.rows || w.softmax.left_out[row] != 0) return;
  w.softmax.left_out[row] = 1;
  ++state.left_out;
  w.query_row[row].key_begin = w.query_row[row].key_end = 0;
  w.softmax.threshold[row] = kNoThreshold;
  RowGroup& group = w.group[row / kGroupRows];
  group.full_begin = INT64_MAX;
  group.full_end = 0;
}

/// Prefetches a row's query, if it is contiguous.
inline void fetch_query(const TaskState& state, std::int64_t row) {
  const Operand& query = state.call.query;
  if (query.stride[3] != 1) return;
  const QueryRow& query_row = state.w.query_row[row];
  const std::int64_t bytes = cpu::bits_of(query.dtype) / 8;
  const char* from = static_cast<const char*>(query.data) +
                     bytes * offset_of(query.stride, state.task.batch, query_row.head, query_row.index);
  for (std::int64_t byte = 0; byte < bytes * state.w.depth; byte += 64) __builtin_prefetch(from + byte, 0, 2);
}

/// Points state.queries at the caller's memory if tiles can read it; otherwise packs the rows. Leaves out
/// rows whose query is not finite, and finds the largest sum of squares of the others.
template <class Format>
void find_queries(TaskState& state) {
  const Arguments& call = state.call;
  const Task& task = state.task;
  const Workspace& w = state.w;
  const HeadRows query = rows_of(call.query, task.batch, task.head_begin, task.row_begin);
  const bool direct = Format::kElements == 1 && task.head_count == 1 && state.rows == state.padded_rows &&
                      query.is_dense(call.head_dim);
  float largest = 0;
  for (std::int64_t r = 0; r < state.rows; ++r) {
    if (kHasMatrixTiles && r + kQueriesAhead < state.rows) fetch_query(state, r + kQueriesAhead);
    w.softmax.left_out[r] = 0;
    const std::int64_t at =
        offset_of(call.query.stride, task.batch, w.query_row[r].head, w.query_row[r].index);
    const float squares = direct ? square_of(state, at) : load_query<Format>(state, r, at);
    w.query_square[r] = squares;
    if (!(squares < kMaxSquare))
      leave_out(state, r);
    else
      largest = squares > largest ? squares : largest;
  }
  state.queries = {w.query, w.query_lanes};
  if (direct) state.queries = {query.floats(0), query.row_stride()};
  state.largest_query_square = largest;
}

/// Finds the positions of the task's rows.
inline void find_rows(const TaskState& state) {
  const Task& task = state.task;
  std::int64_t r = 0;
  for (std::int64_t head = task.head_begin; head < task.head_begin + task.head_count; ++head)
    for (std::int64_t index = task.row_begin; index < task.row_end; ++index, ++r)
      state.w.query_row[r] = query_row_of(state.call, task, head, index);
  pad_rows(state);
  for (r = 0; state.adds_decay && r < state.padded_rows; ++r) {
    const double c = decay_of_row(state.call, task, state.w.query_row[r]);
    state.w.row_decay.wide[r] = c;
    state.w.row_decay.narrow[r] = static_cast<float>(c);
  }
}

/// Empties states, map bins and candidates. With `tracks_maxima`, a row's m moves from its first key on.
inline void start_span(TaskState& state, bool tracks_maxima) {
  const Workspace& w = state.w;
  if (has_masks(state.call)) restore_rows(masked_rows(state));
  state.tracks_maxima = tracks_maxima;
  state.tracked_square = tracks_maxima ? __builtin_inff() : 0;
  clear(w.softmax, state.rows, state.padded_rows, tracks_maxima);
  for (std::int64_t i = 0; w.step < kKvBlock && i < state.padded_rows * w.softmax.value_columns; i += kLanes)
    store(w.partial + i, zero());
  if (state.call.top_k > 0) start_candidates(state);
  state.columns = {0, 0};
  find_groups(state, !tracks_maxima);
}

}  // namespace heed::detail::HEED_ISA
