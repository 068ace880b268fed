// Finds rows whose scores may exceed f32 sums, by the norms that packing measures.
#pragma once

#include "attention/kernels/softmax/epilogue.hpp"
#include "attention/kernels/softmax/load_queries.hpp"

namespace heed::detail::HEED_ISA {

/// Upper bound of a score. The packed keys carry scale * log2(e); 1.001 covers the rounding of the sums of
/// squares.
inline float score_bound(float query_square, float key_square) {
  return 1.001f * __builtin_sqrtf(query_square) * __builtin_sqrtf(key_square);
}

inline constexpr float kBoundedScore = 40.0f;

/// Lets the m of rows move from here on, if their scores may be large with keys of `key_square`. A row that
/// has weights keeps its m of 0; a row without weights waits for its first key. The decision depends on the
/// row alone, because moving m rounds the entropy.
inline void track_maxima(TaskState& state, float key_square) {
  state.tracked_square = key_square;
  if (!(score_bound(state.largest_query_square, key_square) > kBoundedScore)) return;
  const SoftmaxState& s = state.w.softmax;
  bool any = false;
  for (std::int64_t r = 0; r < state.rows; ++r) {
    if (s.threshold[r] != kNoThreshold || s.left_out[r] != 0 ||
        !(score_bound(state.w.query_square[r], key_square) > kBoundedScore))
      continue;
    any = true;
    const bool started = !is_empty(s, r);
    s.threshold[r] = started ? kHeadroom : kUnstarted;
    if (!started) state.w.group[r / kGroupRows].started = false;
  }
  if (any) count_path(state.call.paths, Path::tracked_late);
  state.tracks_maxima = state.tracks_maxima || any;
}

/// Whether f32 sums hold all scores of a KV block, in any order of summation.
inline bool holds_scores(const TaskState& state, const Measure& keys) {
  return keys.in_range && score_bound(state.largest_query_square, keys.largest_square) <= kMaxScore / 2;
}

/// The sums of squares of a KV block's keys, one by one; packing only returns their maximum.
template <class Format>
void measure_keys(const TaskState& state, std::int64_t kv_block_key, std::int64_t count, float* squares) {
  const Workspace& w = state.w;
  const HeadRows keys = even_rows(state, true, kv_block_key, count).rows;
  for (std::int64_t k = 0; k < count; ++k)
    squares[k] = pack_query(keys.tensor, keys.at(kv_block_key + k), w.depth,
                            Format::kScalesScores ? 1.0f : state.call.log2_scale, w.scratch, w.padded_depth);
}

/// Calls refuse(row) for each row that sees a key of this KV block which f32 cannot hold, or whose scores may
/// exceed f32. Returns the largest sum of squares of the other keys.
template <class Format, class Refuse>
float each_row_out_of_range(TaskState& state, std::int64_t kv_block_key, std::int64_t count, Refuse refuse) {
  float squares[kKvBlock];
  measure_keys<Format>(state, kv_block_key, count, squares);
  float largest = 0;
  for (std::int64_t k = 0; k < count; ++k)
    if (squares[k] < kMaxSquare && squares[k] > largest) largest = squares[k];
  for (std::int64_t r = 0; r < state.rows; ++r) {
    const QueryRow query_row = state.w.query_row[r];
    const std::int64_t begin = larger(0, query_row.key_begin - kv_block_key);
    const std::int64_t end = smaller(count, query_row.key_end - kv_block_key);
    const auto holds = [&](float square) {
      return score_bound(state.w.query_square[r], square) <= kMaxScore / 2;
    };
    const bool holds_all = holds(largest);
    bool fits = true;
    for (std::int64_t k = begin; k < end && fits; ++k)
      fits = (squares[k] < kMaxSquare && (holds_all || holds(squares[k]))) ||
             is_forbidden(state, query_row, kv_block_key + k);
    if (!fits) refuse(r);
  }
  return largest;
}

}  // namespace heed::detail::HEED_ISA
