// The forward pass of one task: online softmax over KV blocks (Milakov and Gimelshein 2018; Dao
// 2022).
//
// For a row, with unnormalised weights w_j = 2^(s_j - shift) and an integer shift near
// the largest score so far:
//   sum = sum_j w_j,   output = sum_j w_j v_j,   and at the end   out = output / sum,  lse = shift +
//   log2(sum).
// When a score exceeds shift + 8, shift moves up to it, and what has been summed is multiplied by 2^(old -
// new): an exact power of two, so that the result does not depend on when, or whether, shifts move. That is
// why a row gives the same bits whatever rows it is computed with.
//
// By Cauchy and Schwarz |s| <= |q| |k|. While that bound stays under kBoundedScore no shift is needed at all,
// and tiles skip the search for maxima.
#pragma once

#include "attention/cpu/kernel/decode.hpp"
#include "attention/cpu/kernel/epilogue.hpp"
#include "attention/cpu/kernel/load_queries.hpp"
#include "attention/cpu/kernel/score_block.hpp"
#include "attention/cpu/kernel/value_block.hpp"

namespace heed::detail::HEED_ISA {

/// How large a score can be. The packed keys carry scale * log2(e); 1.001 covers the rounding of the sums of
/// squares.
inline float score_bound(float query_square, float key_square) {
  return 1.001f * __builtin_sqrtf(query_square) * __builtin_sqrtf(key_square);
}

/// The sums of squares of a KV block's keys, one by one, as packing takes them together.
template <bool kBf16Dot>
void measure_keys(const TaskState& state, std::int64_t kv_block_key, std::int64_t count, float* squares) {
  const Arguments& call = state.call;
  const Workspace& w = state.w;
  const std::int64_t at = offset_of(call.key.stride, state.task.batch, state.task.head_begin / call.group,
                                    state.task.key_begin + kv_block_key);
  for (std::int64_t k = 0; k < count; ++k)
    squares[k] = pack_query(call.key, at + k * call.key.stride[2], w.depth, kBf16Dot ? 1.0f : call.scale,
                            w.scratch, w.padded_depth);
}

/// Leaves out rows that see a key of this KV block which f32 cannot hold, or whose scores it may not hold.
/// Returns the largest sum of squares of the other keys.
template <bool kBf16Dot>
float leave_out_rows(TaskState& state, std::int64_t kv_block_key, std::int64_t count) {
  float squares[kKvBlock];
  measure_keys<kBf16Dot>(state, kv_block_key, count, squares);
  float largest = 0;
  for (std::int64_t k = 0; k < count; ++k)
    if (squares[k] < kLargestSquare && squares[k] > largest) largest = squares[k];
  for (std::int64_t r = 0; r < state.rows; ++r) {
    const QueryRow query_row = state.w.query_row[r];
    const std::int64_t begin = larger(0, query_row.key_begin - kv_block_key);
    const std::int64_t end = smaller(count, query_row.key_end - kv_block_key);
    bool fits = begin >= end || score_bound(state.w.query_square[r], largest) <= kLargestScore / 2;
    for (std::int64_t k = begin; k < end && fits; ++k)
      fits = squares[k] < kLargestSquare || is_forbidden(state, query_row, kv_block_key + k);
    if (!fits) leave_out(state, r);
  }
  return largest;
}

/// One step (a KV block, or a panel) for all rows of the task.
template <bool kBf16Dot>
void attend_kv_block(TaskState& state, std::int64_t kv_block_key) {
  const KvBlock kv_block = packed_kv_block<kBf16Dot>(state.call, state.task, state.w, kv_block_key);
  float bound = score_bound(state.largest_query_square, kv_block.measured.keys.largest_square);
  if (!kv_block.measured.keys.in_range || !(bound <= kLargestScore / 2)) {
    bound = score_bound(state.largest_query_square,
                        leave_out_rows<kBf16Dot>(state, kv_block_key, kv_block.count));
    if (state.left_out == state.rows) return;
  }
  if (!state.tracks_maxima && bound > kBoundedScore) track_maxima(state);

  for (std::int64_t row = 0; row < state.padded_rows; row += kQueryBlock) {
    const std::int64_t rows = smaller(kQueryBlock, state.padded_rows - row);
    score_block(state, row, rows, kv_block_key, kv_block);
    insert_candidates(state, row, rows, kv_block_key);
    if (!state.call.output.data) continue;
    drop_block(state, row, rows, kv_block_key, kv_block.count);
    if constexpr (kBf16Dot)
      value_block_bf16_dot<kBf16Dot>(state, row, rows, kv_block_key, kv_block);
    else
      value_block(state, row, rows, kv_block_key, kv_block);
  }
}

/// Whether rows are few, and keys and values are whole vectors that can be read where they lie.
inline bool reads_in_place(const TaskState& state) {
  const Arguments& call = state.call;
  return state.w.step < kKvBlock && call.dropout.threshold == 0 &&
         is_whole_vectors(call.key, call.head_dim) && is_whole_vectors(call.value, call.value_dim);
}

inline auto decode_kernel_for(const TaskState& state) -> void (*)(TaskState&, std::int64_t) {
  const Type type = state.call.key.type;
  if (pack_decode_queries<kHasBf16Dot>(state)) {
    count_path(state.call.paths, Path::decode_pairs);
    return attend_decode<Type::bf16, kHasBf16Dot>;
  }
  return type == Type::f32    ? attend_decode<Type::f32>
         : type == Type::bf16 ? attend_decode<Type::bf16>
                              : attend_decode<Type::f16>;
}

inline void forward(const Arguments& call, const Tiling& tiling, const Task& task, void* workspace) {
  TaskState state = {call, task, lay_out(call, tiling, workspace), 0, 0, false, false, false, false, {}, 0};
  state.rows = task.head_count * (task.row_end - task.row_begin);
  state.padded_rows = round_up(state.rows, kTileRows);
  state.modifies_scores = has_score_modifiers(call);
  state.bf16_dot = kHasBf16Dot && call.query.type == Type::bf16 && call.output.data &&
                   call.output.type == Type::bf16 && state.w.step == kKvBlock && call.dropout.threshold == 0;
  const bool direct = reads_in_place(state);
  state.tracks_maxima = state.modifies_scores || direct;
  state.keeps_statistics = call.entropy.data || call.max_score.data || call.top_k > 0;
  count_path(call.paths, state.w.step == kKvBlock
                             ? (state.bf16_dot ? Path::packed_pairs : Path::packed_chunks)
                         : direct ? Path::decode
                                  : Path::packed_panels);
  load_queries(state);
  state.largest_query_square = find_queries(state);

  const auto attend = direct           ? decode_kernel_for(state)
                      : state.bf16_dot ? attend_kv_block<kHasBf16Dot>
                                       : attend_kv_block<false>;

  std::int64_t low = INT64_MAX;
  std::int64_t high = 0;
  for (std::int64_t r = 0; r < state.rows; ++r) {
    if (state.w.query_row[r].key_begin >= state.w.query_row[r].key_end) continue;
    low = smaller(low, state.w.query_row[r].key_begin);
    high = larger(high, state.w.query_row[r].key_end);
  }
  const std::int64_t unit = direct ? kKvBlock : state.w.step;
  const std::int64_t step = direct ? kDecodeKvBlocks * kKvBlock : unit;
  for (std::int64_t key = low == INT64_MAX ? high : low / unit * unit;
       key < high && state.left_out < state.rows; key += step) {
    attend(state, key);
    if (step < kKvBlock && ((key + step) % kKvBlock == 0 || key + step >= high)) add_partial(state);
  }
  finish_rows(state);
}

}  // namespace heed::detail::HEED_ISA
