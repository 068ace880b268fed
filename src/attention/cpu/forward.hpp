// The forward pass of one task: online softmax over chunks of keys (Milakov and Gimelshein 2018; Dao 2022).
//
// For a row, with weights in flight w_j = 2^(s_j - shift) and an integer shift near the largest score so far:
//   sum = sum_j w_j,   output = sum_j w_j v_j,   and at the end   out = output / sum,  lse = shift +
//   log2(sum).
// When a score exceeds shift + 8, shift moves up to it, and what has been summed is multiplied by 2^(old -
// new): an exact power of two, so that the result does not depend on when, or whether, shifts move. That is
// why a row gives the same bits whatever rows it is computed with.
//
// By Cauchy and Schwarz |s| <= |q| |k|. While that bound stays under kBoundedScore no shift is needed at all,
// and tiles skip the search for maxima.
#pragma once

#include "attention/cpu/direct.hpp"
#include "attention/cpu/finish.hpp"
#include "attention/cpu/score_block.hpp"
#include "attention/cpu/start.hpp"
#include "attention/cpu/value_block.hpp"

namespace heed::detail::HEED_ISA {

/// How large a score can be. The packed keys carry scale * log2(e); 1.001 covers the rounding of the sums of
/// squares.
inline float score_bound(float query_square, float key_square) {
  return 1.001f * __builtin_sqrtf(query_square) * __builtin_sqrtf(key_square);
}

/// The sums of squares of a chunk's keys, one by one, as packing takes them together.
template <bool kPairs>
void measure_keys(const Run& run, std::int64_t chunk_key, std::int64_t count, float* squares) {
  const Call& call = run.call;
  const Work& w = run.w;
  const std::int64_t at = offset_of(call.key.stride, run.task.batch, run.task.head_begin / call.group,
                                    run.task.key_begin + chunk_key);
  for (std::int64_t k = 0; k < count; ++k)
    squares[k] = pack_query(call.key, at + k * call.key.stride[2], w.depth, kPairs ? 1.0f : call.scale,
                            w.scratch, w.padded_depth);
}

/// Leaves out rows that see a key of this chunk which f32 cannot hold, or whose scores it may not hold.
/// Returns the largest sum of squares of the other keys.
template <bool kPairs>
float leave_out_rows(Run& run, std::int64_t chunk_key, std::int64_t count) {
  float squares[kChunk];
  measure_keys<kPairs>(run, chunk_key, count, squares);
  float largest = 0;
  for (std::int64_t k = 0; k < count; ++k)
    if (squares[k] < kLargestSquare && squares[k] > largest) largest = squares[k];
  for (std::int64_t r = 0; r < run.rows; ++r) {
    const Site site = run.w.site[r];
    const std::int64_t begin = larger(0, site.low - chunk_key);
    const std::int64_t end = smaller(count, site.high - chunk_key);
    bool fits = begin >= end || score_bound(run.w.query_square[r], largest) <= kLargestScore / 2;
    for (std::int64_t k = begin; k < end && fits; ++k)
      fits = squares[k] < kLargestSquare || is_forbidden(run, site, chunk_key + k);
    if (!fits) leave_out(run, r);
  }
  return largest;
}

/// One step (a chunk of keys, or a panel) for all rows of the task.
template <bool kPairs>
void attend_step(Run& run, std::int64_t chunk_key) {
  const Chunk chunk = packed_chunk<kPairs>(run.call, run.task, run.w, chunk_key);
  float bound = score_bound(run.largest_query_square, chunk.measured.keys.largest_square);
  if (!chunk.measured.keys.in_range || !(bound <= kLargestScore / 2)) {
    bound = score_bound(run.largest_query_square, leave_out_rows<kPairs>(run, chunk_key, chunk.count));
    if (run.left_out == run.rows) return;
  }
  if (!run.tracked && bound > kBoundedScore) start_tracking(run);

  for (std::int64_t row = 0; row < run.padded_rows; row += kBlockRows) {
    const std::int64_t rows = smaller(kBlockRows, run.padded_rows - row);
    score_block(run, row, rows, chunk_key, chunk);
    offer_block(run, row, rows, chunk_key);
    if (!run.call.output.data) continue;
    drop_block(run, row, rows, chunk_key, chunk.count);
    if constexpr (kPairs)
      value_pairs_block<kPairs>(run, row, rows, chunk_key, chunk);
    else
      value_block(run, row, rows, chunk_key, chunk);
  }
}

/// Whether rows are few, and keys and values are whole vectors that can be read where they lie.
inline bool reads_in_place(const Run& run) {
  const Call& call = run.call;
  return run.w.step < kChunk && call.dropout.threshold == 0 && is_direct(call.key, call.head_dim) &&
         is_direct(call.value, call.value_dim);
}

inline auto direct_step_for(const Run& run) -> void (*)(Run&, std::int64_t) {
  const Type type = run.call.key.type;
  if (pair_direct_queries<kHasPairs>(run)) {
    count_path(run.call.paths, Path::decode_pairs);
    return attend_direct<Type::bf16, kHasPairs>;
  }
  return type == Type::f32    ? attend_direct<Type::f32>
         : type == Type::bf16 ? attend_direct<Type::bf16>
                              : attend_direct<Type::f16>;
}

inline void forward(const Call& call, const Tiling& tiling, const Task& task, void* workspace) {
  Run run = {call, task, lay_out(call, tiling, workspace), 0, 0, false, false, false, false, {}, 0};
  run.rows = task.head_count * (task.row_end - task.row_begin);
  run.padded_rows = round_up(run.rows, kTileRows);
  run.transforms = transforms_scores(call);
  run.pairs = kHasPairs && call.query.type == Type::bf16 && call.output.data &&
              call.output.type == Type::bf16 && run.w.step == kChunk && call.dropout.threshold == 0;
  const bool direct = reads_in_place(run);
  run.tracked = run.transforms || direct;
  run.observed = call.entropy.data || call.max_score.data || call.top_k > 0;
  count_path(call.paths, run.w.step == kChunk ? (run.pairs ? Path::packed_pairs : Path::packed_chunks)
                         : direct             ? Path::decode
                                              : Path::packed_panels);
  start_rows(run);
  run.largest_query_square = find_queries(run);

  const auto attend = direct ? direct_step_for(run) : run.pairs ? attend_step<kHasPairs> : attend_step<false>;

  std::int64_t low = INT64_MAX;
  std::int64_t high = 0;
  for (std::int64_t r = 0; r < run.rows; ++r) {
    if (run.w.site[r].low >= run.w.site[r].high) continue;
    low = smaller(low, run.w.site[r].low);
    high = larger(high, run.w.site[r].high);
  }
  const std::int64_t unit = direct ? kChunk : run.w.step;
  const std::int64_t step = direct ? kDirectChunks * kChunk : unit;
  for (std::int64_t key = low == INT64_MAX ? high : low / unit * unit; key < high && run.left_out < run.rows;
       key += step) {
    attend(run, key);
    if (step < kChunk && ((key + step) % kChunk == 0 || key + step >= high)) add_partial(run);
  }
  finish_rows(run);
}

}  // namespace heed::detail::HEED_ISA
