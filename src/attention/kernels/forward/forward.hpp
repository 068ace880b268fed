// The forward pass of one task: online softmax over KV blocks (Milakov and Gimelshein 2018; Dao 2022).
//
// A row's state (softmax_state.hpp) holds sum = sum_j w_j and output = sum_j w_j v_j, with unnormalised
// weights w_j = 2^(s_j - m). At the end out = output / sum and lse = m + log2(sum). When a score exceeds m +
// 8, m moves up to it. By Cauchy and Schwarz |s| <= |q| |k|. While that bound of a row stays under
// kBoundedScore, its m is 0. While all rows' bounds do, tiles skip the search for maxima.
#pragma once

#include "attention/kernels/decode/decode.hpp"
#include "attention/kernels/decode/decode_tiles.hpp"
#include "attention/kernels/forward/received.hpp"
#include "attention/kernels/forward/score_block.hpp"
#include "attention/kernels/forward/score_range.hpp"
#include "attention/kernels/forward/tile_flow.hpp"
#include "attention/kernels/softmax/epilogue.hpp"
#include "attention/kernels/softmax/load_queries.hpp"
#include "attention/kernels/softmax/plan_tiling.hpp"
#include "attention/kernels/softmax/value_block.hpp"

namespace heed::detail::HEED_ISA {

/// Leaves out rows that see a key of this KV block which f32 cannot hold, or rows whose scores may exceed
/// f32. Returns the largest sum of squares of the other keys.
template <class Format>
float leave_out_rows(TaskState& state, std::int64_t kv_block_key, std::int64_t count) {
  return each_row_out_of_range<Format>(state, kv_block_key, count,
                                       [&](std::int64_t row) { leave_out(state, row); });
}

/// Leaves out all rows that may see one of these keys.
inline void leave_out_all(TaskState& state, const KeyRange& keys) {
  for (std::int64_t r = 0; r < state.rows; ++r)
    if (state.w.query_row[r].key_begin < keys.end && state.w.query_row[r].key_end > keys.begin)
      leave_out(state, r);
}

/// Leaves out rows for which f32 does not hold what comes of a KV block, and lets shifts move where its
/// scores may be large. Returns false if no row is left.
template <class Format>
bool admit_rows(TaskState& state, std::int64_t kv_block_key, const KvBlock& kv_block) {
  float key_square = kv_block.measured.keys.largest_square;
  if (!holds_scores(state, kv_block.measured.keys)) {
    const float others = leave_out_rows<Format>(state, kv_block_key, kv_block.count);
    if (!kv_block.measured.keys.in_range) key_square = others;
  }
  if (state.left_out < state.rows && kv_block.measured.value_factor == 0)
    leave_out_all(state, {kv_block_key, kv_block_key + kv_block.count});
  if (state.left_out == state.rows) return false;
  if (key_square > state.tracked_square) track_maxima(state, key_square);
  return true;
}

/// Whether admit_rows() would change anything about a row.
inline bool changes_rows(const TaskState& state, const KvBlock& kv_block) {
  const Measure& keys = kv_block.measured.keys;
  return !holds_scores(state, keys) || kv_block.measured.value_factor == 0 ||
         (keys.largest_square > state.tracked_square &&
          score_bound(state.largest_query_square, keys.largest_square) > kBoundedScore);
}

/// Processes KV blocks from `key` on, before `end`, by matrix tiles. Blocks that change no row go together.
template <class Format>
void attend_chunk(TaskState& state, std::int64_t key, std::int64_t end) {
  KvBlock kv_blocks[kMostChunkBlocks];
  const std::int64_t room = smaller(kMostChunkBlocks, state.w.packed_blocks);
  std::int64_t first = key, count = 0;
  const auto attend = [&] {
    if (count > 0) TileFlow<Format>(state, first, kv_blocks, count, true).run();
    count = 0;
  };
  for (; key < end; key += kKvBlock) {
    if (count == room) attend();
    const KvBlock kv_block = packed_kv_block<Format>(state, key);
    if (changes_rows(state, kv_block)) attend();
    if (!admit_rows<Format>(state, key, kv_block)) return;
    if (count == 0) first = key;
    kv_blocks[count++] = kv_block;
  }
  attend();
  const std::int64_t kept = state.w.packed_blocks * kKvBlock;
  if (kept > kKvBlock && kept < state.call.key_length) count_path(state.call.paths, Path::repacked);
}

/// Processes one step (a KV block, or a panel) for all rows of the task.
template <class Format>
void attend_kv_block(TaskState& state, std::int64_t kv_block_key) {
  const KvBlock kv_block = packed_kv_block<Format>(state, kv_block_key);
  if (!admit_rows<Format>(state, kv_block_key, kv_block)) return;
  if (state.kept != nullptr) sum_kept(state.call, *state.kept, kv_block_key + kKvBlock);
  for (std::int64_t row = 0; row < state.padded_rows; row += kQueryBlock) {
    const std::int64_t rows = smaller(kQueryBlock, state.padded_rows - row);
    if (state.kept != nullptr) state.weights = kept_weights(*state.kept, kv_block_key) + row * kKvBlock;
    score_block<Format>(state, row, rows, kv_block_key, kv_block);
    if (state.kept != nullptr)
      keep_block(state, row, smaller(row + rows, state.rows), kv_block_key, kv_block.count);
    insert_candidates(state, row, rows, state.weights, kv_block_key);
    if (!state.call.output.data) continue;
    drop_block(state, row, rows, kv_block_key, kv_block.count);
    if constexpr (Format::kMatrixTiles)
      matrix_value_block<Format>(state, row, rows, kv_block_key, kv_block);
    else if constexpr (Format::kRoundsWeights)
      rounded_value_block<Format>(state, row, rows, kv_block_key, kv_block);
    else
      value_block<Format>(state, row, rows, kv_block_key, kv_block);
  }
}

template <class Format>
void attend_packed(const TasksTogether& tasks, std::int64_t key, std::int64_t end) {
  for (std::int64_t t = 0; t < tasks.count; ++t) {
    TaskState& state = *tasks.of[t];
    if constexpr (Format::kMatrixTiles)
      if (!state.keys_in_place) {
        attend_chunk<Format>(state, key, smaller(end, key + chunk_keys(state.call)));
        continue;
      }
    attend_kv_block<Format>(state, key);
  }
}

/// One step of a span: the KV blocks from `key` on, before `end`.
using AttendStep = void (*)(const TasksTogether&, std::int64_t key, std::int64_t end);

/// The way a task goes over its keys.
struct WayOverKeys {
  AttendStep attend;
  std::int64_t unit, step;  // in keys: alignment of the steps, and their length
  bool tracks_maxima;       // from the first key on
};

/// Whether this unit takes a call.
inline bool takes_forward(const Arguments& call) {
  if (kComputesEverything) return true;
  if (!kHasForward) return false;
  if (kHasMatrixTiles)  // and refuse what bf16 would round
    return fills_matrix_tiles(call) &&
           (!UnitFormat::kRoundsWeights || !call.output.data || call.output.dtype == kMatrixType);
  const Tiling tiling = plan_tiling(call);
  return multiplies_pairs(call, tiling) ||
         (decodes(tiling.path) && call.query.dtype == DType::bf16 && call.key.dtype == DType::bf16 &&
          call.head_dim % (2 * kLanes) == 0);
}

template <LaneFormat Format>
AttendStep coded_decode_kernel_for(RowFormat format, Path path) {
  if (path == Path::decode_digits)
    return format == RowFormat::int8 ? attend_decode<DType::f32, Format, RowFormat::int8, kHasByteDots>
                                     : attend_decode<DType::f32, Format, RowFormat::int4, kHasByteDots>;
  return format == RowFormat::int8   ? attend_decode<DType::f32, Format, RowFormat::int8>
         : format == RowFormat::int4 ? attend_decode<DType::f32, Format, RowFormat::int4>
                                     : attend_decode<DType::f32, Format, RowFormat::e4m3>;
}

/// The decode kernel for the keys' type on the planned path. Pairs of bf16 are multiplied in place.
template <LaneFormat Format>
AttendStep decode_kernel_for(TaskState& state, Path path) {
  const Arguments& call = state.call;
  if constexpr (Format::kElements == 2) {
    pack_decode_pairs(state);
    return attend_decode<DType::bf16, Format>;
  } else {
    if (state.kv.codes != nullptr) return coded_decode_kernel_for<Format>(state.kv.codes->codes.format, path);
    if (are_pair_rows(call.key.dtype, call.head_dim)) split_decode_queries(state);
    return call.key.dtype == DType::f32    ? attend_decode<DType::f32, Format>
           : call.key.dtype == DType::bf16 ? attend_decode<DType::bf16, Format>
                                           : attend_decode<DType::f16, Format>;
  }
}

/// Sets up a task's rows and queries for the planned way to its keys.
template <TileFormat Format>
WayOverKeys start_task(TaskState& state, const Tiling& tiling) {
  const Arguments& call = state.call;
  count_path(call.paths, tiling.path);
  find_rows(state);
  if constexpr (!Format::kMatrixTiles) {
    if (decodes(tiling.path)) {
      find_queries<F32Format>(state);
      return {decode_kernel_for<Format>(state, tiling.path), kKvBlock, kDecodeKvBlocks * kKvBlock, true};
    }
  }
  find_queries<Format>(state);
  if constexpr (Format::kMatrixTiles && MatrixTiles::kHasRegisters && Format::kParts == 1)
    if (tiling.path == Path::decode_tiles) {
      load_query_columns(state);
      return {attend_by_tiles<MatrixTiles>, kKvBlock, kDecodeKvBlocks * kKvBlock, true};
    }
  if (state.keys_in_place) load_query_columns(state);
  state.splits_weights = Format::kMatrixTiles && call.output.data && call.dropout.threshold == 0;
  state.sums_rounded = state.splits_weights && Format::kRoundsWeights && state.w.softmax.rounded == nullptr;
  state.stores_weights = !state.splits_weights || call.top_k > 0 || has_panel_statistics(call);
  const std::int64_t step = Format::kMatrixTiles && !state.keys_in_place ? chunk_keys(call) : tiling.step;
  return {attend_packed<Format>, tiling.step, step, state.modifies_scores || state.keys_in_place};
}

/// The range of keys that the task's rows may see.
inline KeyRange seen_keys(const TaskState& state) {
  KeyRange seen = {INT64_MAX, 0};
  for (std::int64_t r = 0; r < state.rows; ++r) {
    const QueryRow& query_row = state.w.query_row[r];
    if (query_row.key_begin >= query_row.key_end) continue;
    seen.begin = smaller(seen.begin, query_row.key_begin);
    seen.end = larger(seen.end, query_row.key_end);
  }
  return seen.begin < seen.end ? seen : KeyRange{0, 0};
}

/// Narrows the rows to a step's keys that masks allow. Returns false if there are none.
inline bool sees_step(const TaskState& state, const KeySpan& keys) {
  return !has_masks(state.call) || mask_rows(masked_rows(state), keys);
}

/// Whether masks may allow some key of a span.
inline bool may_see_span(const TaskState& state, const KeyRange& keys) {
  return coverage_of_rows(state.call, state.task, 0, state.rows, {keys.begin, keys.end - keys.begin}) !=
         Coverage::empty;
}

/// Computes the states of some tasks' rows over `keys`, which lie in one span, from empty states.
inline void attend_keys(const TasksTogether& tasks, const WayOverKeys& pass, const KeyRange& keys) {
  for (std::int64_t t = 0; t < tasks.count; ++t) start_span(*tasks.of[t], pass.tracks_maxima);
  for (std::int64_t key = keys.begin / pass.unit * pass.unit; key < keys.end; key += pass.step) {
    TasksTogether under_way = {{}, 0}, seeing = {{}, 0};
    for (std::int64_t t = 0; t < tasks.count; ++t) {
      TaskState& state = *tasks.of[t];
      if (state.left_out == state.rows) continue;
      under_way.of[under_way.count++] = &state;
      if (sees_step(state, {key, smaller(pass.step, keys.end - key)})) seeing.of[seeing.count++] = &state;
    }
    if (under_way.count == 0) return;
    if (seeing.count > 0) pass.attend(seeing, key, keys.end);
    const bool ends_kv_block = (key + pass.step) % kKvBlock == 0 || key + pass.step >= keys.end;
    for (std::int64_t t = 0; pass.step < kKvBlock && ends_kv_block && t < under_way.count; ++t)
      add_partial(*under_way.of[t]);
  }
}

inline void attend_keys(TaskState& state, const WayOverKeys& pass, const KeyRange& keys) {
  attend_keys({{&state}, 1}, pass, keys);
}

inline KeyRange keys_of_span(const KeyRange& seen, std::int64_t span) {
  return {larger(seen.begin, span * cpu::kSpan), smaller(seen.end, (span + 1) * cpu::kSpan)};
}

/// Merges a span's states and bins into the states and bins of the spans before it.
inline void merge_span(TaskState& state, const SoftmaxState& span, KeyRange& merged_columns) {
  const Workspace& w = state.w;
  for (std::int64_t row = 0; row < state.rows; ++row) {
    const MergeFactors factors = merge_row(w.merged, span, row);
    if (state.call.map_size.columns > 0) merge_bins(state, row, merged_columns, factors);
  }
  merge_lists(w.merged, span, w.moved, kKvBlock);
  if (merged_columns.end == 0) merged_columns = state.columns;
  merged_columns.end = larger(merged_columns.end, state.columns.end);
}

inline void clear_merged(const TaskState& state) {
  const SoftmaxState& merged = state.w.merged;
  clear(merged, state.rows, state.padded_rows, false);
  for (std::int64_t r = 0; r < state.rows; ++r) merged.left_out[r] = 0;
}

/// The states of the first span are the merged states so far: merging them with empty ones would only copy
/// them.
inline void begin_merged(TaskState& state, KeyRange& merged_columns) {
  Workspace& w = state.w;
  const SoftmaxState span = w.softmax;
  w.softmax = w.merged;
  w.merged = span;
  for (std::int64_t r = 0; r < state.rows; ++r) w.softmax.left_out[r] = span.left_out[r];
  for (std::int64_t row = 0; row < span.list_rows; row += kLanes)
    drop_light_entries(lists_of(span, row), span.levels);
  merged_columns = state.columns;
}

/// Computes the states of a task's rows over all their keys.
inline const SoftmaxState& attend_task(TaskState& state, const Tiling& tiling) {
  const WayOverKeys pass = start_task<UnitFormat>(state, tiling);
  const KeyRange seen = seen_keys(state);
  clear_bins(state);
  const std::int64_t first = seen.begin / cpu::kSpan;
  if (seen.end <= (first + 1) * cpu::kSpan) {
    attend_keys(state, pass, seen);
    return state.w.softmax;
  }
  KeyRange columns = {0, 0};
  bool has_merged = false;
  for (std::int64_t span = first; span * cpu::kSpan < seen.end && state.left_out < state.rows; ++span) {
    const KeyRange keys = keys_of_span(seen, span);
    if (!may_see_span(state, keys)) continue;
    count_path(state.call.paths, Path::spans_merged);
    carry_bins(state, columns);
    attend_keys(state, pass, keys);
    if (has_merged)
      merge_span(state, state.w.softmax, columns);
    else
      begin_merged(state, columns);
    has_merged = true;
  }
  if (!has_merged) clear_merged(state);
  state.columns = columns;
  return state.w.merged;
}

inline void forward(const Arguments& call, const Tiling& tiling, const Task& task, void* workspace) {
  const MatrixTiles tiles;
  TaskState state = {context_of(call, task, lay_out(call, tiling, workspace))};
  finish_rows(state, attend_task(state, tiling));
}

inline void finish_received(const Arguments& call, cpu::KeptTask& kept) {
  sum_kept(call, kept, kept.end_key);
}

inline void forward_received(const Arguments& call, const Tiling& tiling, const Task& task, void* workspace,
                             cpu::KeptTask& kept, const cpu::TaskSums& sums) {
  TaskState state = {context_of(call, task, lay_out(call, tiling, workspace))};
  state.kept = &kept;
  const SoftmaxState& s = attend_task(state, tiling);
  finish_rows(state, s);
  finish_received(call, kept);
  keep_task(state, s, seen_keys(state), sums);
}

/// Sets up task number `at` of attend_span() in its part of the workspace.
inline TaskState span_state(const Arguments& call, const Tiling& tiling, const cpu::SpanTask& task,
                            std::int64_t at, void* workspace) {
  void* room = static_cast<char*>(workspace) + static_cast<std::size_t>(at) * tiling.bytes;
  if (at > 0) reset(call, tiling, room);
  Workspace w = lay_out(call, tiling, room);
  Memory states(task.states);
  w.softmax = lay_out_state(parts_of(call, tiling), states);
  return {context_of(call, *task.task, w)};
}

/// Tasks whose rows see the same keys of the span run side by side. Each has the same bits as alone.
inline void attend_span(const Arguments& call, const Tiling& tiling, const cpu::SpanTask* tasks,
                        std::int64_t count, std::int64_t span, void* workspace) {
  const MatrixTiles tiles;
  alignas(TaskState) std::byte rooms[cpu::kTasksTogether][sizeof(TaskState)];
  TasksTogether together = {{}, 0};
  KeyRange keys = {0, 0};
  WayOverKeys pass = {};
  for (std::int64_t t = 0; t < count; ++t) {
    auto* state = new (rooms[t]) TaskState(span_state(call, tiling, tasks[t], t, workspace));
    const WayOverKeys own = start_task<UnitFormat>(*state, tiling);
    const KeyRange seen = keys_of_span(seen_keys(*state), span);
    count_path(call.paths, Path::spans_shared);
    if (together.count > 0 && (seen.begin != keys.begin || seen.end != keys.end)) {
      attend_keys(together, pass, keys);
      together.count = 0;
    }
    pass = own;
    keys = seen;
    together.of[together.count++] = state;
  }
  attend_keys(together, pass, keys);
  if (count > 1) count_path(call.paths, Path::spans_together, count);
}

inline void merge_spans(const Arguments& call, const Tiling& tiling, const Task& task, std::int64_t spans,
                        void* memory, void* workspace) {
  TaskState state = {context_of(call, task, lay_out(call, tiling, workspace))};
  find_rows(state);
  clear_merged(state);
  KeyRange no_columns = {0, 0};
  for (std::int64_t span = 0; span < spans; ++span) {
    Memory states(static_cast<char*>(memory) + static_cast<std::size_t>(span) * tiling.state_bytes);
    merge_span(state, lay_out_state(parts_of(call, tiling), states), no_columns);
  }
  finish_rows(state, state.w.merged);
}

/// A task whose states over the spans so far are in `states`.
inline TaskState merged_state(const Arguments& call, const Tiling& tiling, const Task& task, void* states,
                              void* workspace) {
  Workspace w = lay_out(call, tiling, workspace);
  Memory merged(states);
  w.merged = lay_out_state(parts_of(call, tiling), merged);
  return {context_of(call, task, w)};
}

inline void clear_states(const Arguments& call, const Tiling& tiling, const Task& task, void* states) {
  clear_merged(merged_state(call, tiling, task, states, nullptr));
}

inline void merge_states(const Arguments& call, const Tiling& tiling, const Task& task, void* span,
                         void* states, void* workspace) {
  TaskState state = merged_state(call, tiling, task, states, workspace);
  Memory from(span);
  KeyRange no_columns = {0, 0};
  merge_span(state, lay_out_state(parts_of(call, tiling), from), no_columns);
}

inline void finish_states(const Arguments& call, const Tiling& tiling, const Task& task, void* states,
                          void* workspace) {
  const TaskState state = merged_state(call, tiling, task, states, workspace);
  find_rows(state);
  finish_rows(state, state.w.merged);
}

}  // namespace heed::detail::HEED_ISA
