// The weights pass, for results that need the final sums: full weights, received, and scores. A task is some
// KV blocks of one head against all rows of its segment. So every key's sum belongs to one task, and is added
// up in the order of the rows.
#pragma once

#include "attention/kernels/forward/forward.hpp"

namespace heed::detail::HEED_ISA {

using cpu::WeightsTask;

inline constexpr std::int64_t kPassKvBlocks = 4;        // per task, at most; each task sets up its rows
inline constexpr std::int64_t kPassKeyBytes = 1 << 20;  // limit of their packed keys

/// The tiling of a weights pass: one block of rows, and the keys of a task, which all stay packed.
inline Tiling plan_weights_pass(const Arguments& call) {
  const std::int64_t kv_block_bytes = static_cast<std::int64_t>(sizeof(float)) * kKvBlock * call.head_dim;
  const std::int64_t kv_blocks = larger(1, smaller(kPassKvBlocks, kPassKeyBytes / kv_block_bytes));
  Tiling tiling;
  tiling.rows = smaller(kQueryBlock, round_up(larger(1, call.query_length), kGroupRows));
  tiling.step = kKvBlock;
  tiling.path = Path::weights_pass;
  tiling.cached_keys = kv_blocks * kKvBlock;
  tiling.bytes = lay_out(call, tiling, nullptr).bytes;
  return tiling;
}

/// The weight that each key of a task received. Kahan's compensation keeps the error of many small terms
/// independent of the number of row blocks (Kahan 1965).
struct KeySums {
  alignas(64) float sum[kPassKvBlocks * kKvBlock];
  alignas(64) float lost[kPassKvBlocks * kKvBlock];
};

inline void clear(KeySums& sums, std::int64_t keys) {
  for (std::int64_t k = 0; k < keys; k += kLanes) {
    store(sums.sum + k, zero());
    store(sums.lost + k, zero());
  }
}

/// sums[key, key + count) += terms [count].
inline void add_terms(KeySums& sums, std::int64_t key, const float* modifiers, std::int64_t count) {
  for (std::int64_t k = 0; k < count; k += kLanes) {
    const Vf sum = load(sums.sum + key + k);
    const Vf term = sub(load(modifiers + k), load(sums.lost + key + k));
    const Vf next = add(sum, term);
    store(sums.lost + key + k, sub(sub(next, sum), term));
    store(sums.sum + key + k, next);
  }
}

inline void write_sums(const Output& out, const WeightsTask& pass, const KeySums& sums) {
  if (!out.data) return;
  const Task& task = pass.rows;
  float* to = static_cast<float*>(out.data) + task.batch * out.stride[0] + task.head_begin * out.stride[1];
  const std::int64_t count = pass.block_end - pass.block_begin;
  for (std::int64_t k = 0; k < count; ++k)
    to[(task.key_begin + pass.block_begin + k) * out.stride[2]] = sums.sum[k];
}

/// Sets up a block's rows: query rows, queries, the final shifts of the forward pass, and the factors of
/// their weights. The scores pass needs neither shifts nor factors (inverse == nullptr).
template <class Format>
void load_rows(TaskState& state, float* inverse) {
  const Arguments& call = state.call;
  const Task& task = state.task;
  const Workspace& w = state.w;
  find_rows(state);
  find_groups(state, true);
  find_queries<Format>(state);
  const auto kept = [&](const Output& rows, std::int64_t r) {
    return static_cast<const float*>(
        rows.data)[offset_of(rows.stride, task.batch, task.head_begin, task.row_begin + r)];
  };
  for (std::int64_t r = 0; r < state.padded_rows; ++r) {
    const bool known = inverse != nullptr && r < state.rows;
    w.softmax.shift[r] = known ? kept(call.row_shift, r) : 0;
    if (known) inverse[r] = kept(call.row_inverse, r);
    w.softmax.threshold[r] = kNoThreshold;
    store(w.softmax.sum + r * kLanes, zero());
  }
  const cpu::RowStatus* status =
      call.row_status + (task.batch * call.heads + task.head_begin) * call.query_length + task.row_begin;
  for (std::int64_t r = 0; inverse != nullptr && r < state.rows; ++r)
    if (status[r] == cpu::RowStatus::out_of_range) leave_out(state, r);
}

/// Computes a row's weights for a KV block whose scores may exceed f32; their products are summed in f64. If
/// forward looked at scores instead of norms, the scores were in range, but another order of the same sum may
/// overflow.
inline void score_row_in_f64(TaskState& state, std::int64_t row, std::int64_t kv_block_key,
                             std::int64_t count) {
  const QueryRow& query_row = state.w.query_row[row];
  for (std::int64_t done = 0; done < count; done += kPanel) {
    alignas(64) float scores[1][kPanel] = {};
    for (std::int64_t k = 0; k < smaller(kPanel, count - done); ++k)
      scores[0][k] = product_of(state, query_row, kv_block_key + done + k);
    softmax_scores(state, row, kv_block_key + done, scores, state.weights + row * kKvBlock + done, done,
                   true);
  }
}

/// sums [kKvBlock] = the sum of the weights of the block's rows [begin, end). They are added in the order of
/// the rows, whichever tiles computed them. There are at most kQueryBlock terms, so they are added plainly.
inline void sum_rows(const TaskState& state, std::int64_t begin, std::int64_t end, const float* inverse,
                     std::int64_t kv_block_key, std::int64_t count, float* sums) {
  for (std::int64_t k = 0; k < kKvBlock; k += kLanes) store(sums + k, zero());
  for (std::int64_t group = begin / kGroupRows; group * kGroupRows < end; ++group) {
    const KeyRange keys = written_keys(state.w.group[group], kv_block_key, count);
    const std::int64_t first = larger(begin, group * kGroupRows);
    const std::int64_t rows = smaller(end, (group + 1) * kGroupRows) - first;
    const float* weights = state.weights + first * kKvBlock;
    std::int64_t k = keys.begin;
    for (; k + kPanel <= keys.end; k += kPanel)
      sum_vectors<kPanelVectors>(weights + k, inverse + first, rows, sums + k);
    for (; k < keys.end; k += kLanes) sum_vectors<1>(weights + k, inverse + first, rows, sums + k);
  }
}

/// Whether a head's weights matrix is too large to be still in a cache when it is read.
inline bool outgrows_caches(const Arguments& call) {
  return call.query_length * call.key_length >= kUncachedBytes / static_cast<std::int64_t>(sizeof(float));
}

/// to [count], `stride` apart = from * factor.
inline void write_scaled(float* to, std::int64_t stride, const float* from, std::int64_t count, float factor,
                         bool past_caches) {
  if (stride != 1) {
    for (std::int64_t k = 0; k < count; ++k) to[k * stride] = from[k] * factor;
    return;
  }
  const Vf f = splat(factor);
  std::int64_t k = 0;
  if (past_caches && reinterpret_cast<std::uintptr_t>(to) % sizeof(Vf) == 0)
    for (; k + kLanes <= count; k += kLanes) store_past_caches(to + k, mul(load(from + k), f));
  for (; k + kLanes <= count; k += kLanes) store(to + k, mul(load(from + k), f));
  if (k < count) store_first(to + k, count - k, mul(load(from + k), f));
}

inline void write_zeros(float* to, std::int64_t stride, std::int64_t count) {
  for (std::int64_t k = 0; k < count; ++k) to[k * stride] = 0;
}

/// Address of a row's weights of the keys from `key` on.
inline float* weights_at(const TaskState& state, std::int64_t row, std::int64_t key) {
  const Output& out = state.call.weights;
  const Task& task = state.task;
  return static_cast<float*>(out.data) +
         offset_of(out.stride, task.batch, task.head_begin, task.row_begin + row) +
         (task.key_begin + key) * out.stride[3];
}

inline void forbid_weights(const TaskState& state, std::int64_t key, std::int64_t count) {
  for (std::int64_t r = 0; r < state.rows; ++r)
    write_zeros(weights_at(state, r, key), state.call.weights.stride[3], count);
}

/// Writes the block's rows of the weights matrix, for one KV block.
inline void write_weights(const TaskState& state, const float* inverse, std::int64_t kv_block_key,
                          std::int64_t count) {
  const std::int64_t stride = state.call.weights.stride[3];
  const bool past_caches = outgrows_caches(state.call);
  for (std::int64_t r = 0; r < state.rows; ++r) {
    float* to = weights_at(state, r, kv_block_key);
    const KeyRange keys = written_keys(state.w.group[r / kGroupRows], kv_block_key, count);
    const std::int64_t begin = keys.begin;
    const std::int64_t end = smaller(count, keys.end);
    write_zeros(to, stride, begin);
    write_scaled(to + begin * stride, stride, state.weights + r * kKvBlock + begin, end - begin, inverse[r],
                 past_caches);
    write_zeros(to + end * stride, stride, count - end);
  }
  if (past_caches) end_stores_past_caches();
}

/// The keys of a segment that the block's rows may see at most. Positions rise with the rows, and both ends
/// of a row's range rise with its position.
inline KeyRange keys_of_block(const TaskState& state) {
  const Task& task = state.task;
  return {query_row_of(state.call, task, task.head_begin, task.row_begin).key_begin,
          query_row_of(state.call, task, task.head_begin, task.row_end - 1).key_end};
}

/// Computes the weights of all rows for one KV block.
template <class Format>
void compute_weights(TaskState& state, std::int64_t kv_block_key, const KvBlock& kv_block) {
  if constexpr (Format::kMatrixTiles)
    TileFlow<Format>(state, kv_block_key, &kv_block, 1, false).run();
  else
    score_block<Format>(state, 0, state.padded_rows, kv_block_key, kv_block);
}

/// Computes the weights of a task's KV blocks, one row block after the other. For KV blocks that none of a
/// block's rows may see, it only writes the matrix's zeros.
inline void weights_pass(const Arguments& call, const Tiling& tiling, const WeightsTask& pass,
                         void* workspace) {
  const MatrixTiles tiles;
  const Workspace w = lay_out(call, tiling, workspace);
  KeySums received, received_last;
  if (call.received.data) clear(received, pass.block_end - pass.block_begin);
  if (call.received_last.data) clear(received_last, pass.block_end - pass.block_begin);
  alignas(64) float sums[kKvBlock];
  alignas(64) float inverse[kQueryBlock];
  for (std::int64_t begin = pass.rows.row_begin; begin < pass.rows.row_end; begin += tiling.rows) {
    Task task = pass.rows;
    task.row_begin = begin;
    task.row_end = smaller(pass.rows.row_end, begin + tiling.rows);
    TaskState state = {context_of(call, task, w)};
    const KeyRange seen = keys_of_block(state);
    bool started = false;
    for (std::int64_t key = pass.block_begin; key < pass.block_end; key += kKvBlock) {
      const std::int64_t count = smaller(kKvBlock, pass.block_end - key);
      const bool may_see = seen.begin < key + count && seen.end > key &&
                           coverage_of_rows(call, task, 0, state.rows, {key, count}) != Coverage::empty;
      if (may_see && !started) load_rows<UnitFormat>(state, inverse);
      started = started || may_see;
      if (!may_see || !sees_step(state, {key, count})) {
        count_path(call.paths, Path::weights_pass_unseen);
        if (call.weights.data) forbid_weights(state, key, count);
        continue;
      }
      count_path(call.paths, Path::weights_pass);
      const KvBlock kv_block = packed_kv_block<UnitFormat>(state, key);
      compute_weights<UnitFormat>(state, key, kv_block);
      if (!holds_scores(state, kv_block.measured.keys))
        each_row_out_of_range<UnitFormat>(
            state, key, count, [&](std::int64_t row) { score_row_in_f64(state, row, key, count); });
      if (call.weights.data) write_weights(state, inverse, key, count);
      const auto receive = [&](KeySums& to, std::int64_t first) {
        sum_rows(state, first, state.rows, inverse, key, count, sums);
        add_terms(to, key - pass.block_begin, sums, count);
      };
      if (call.received.data) receive(received, 0);
      const std::int64_t last = task.segment_row_end - call.received_last_rows - begin;
      if (call.received_last.data && last < state.rows) receive(received_last, larger(0, last));
    }
  }
  write_sums(call.received, pass, received);
  write_sums(call.received_last, pass, received_last);
}

/// Whether this unit takes a call's weights pass. A unit with products of bf16 pairs takes bf16 calls.
inline bool takes_weights_pass(const Arguments& call) {
  if (!kHasForward) return false;
  if (kHasMatrixTiles) return fills_matrix_tiles(call);
  return kComputesEverything || call.query.dtype == DType::bf16;
}

/// Writes the scores of a block for one KV block, at the stage asked for, in natural units; -inf for
/// forbidden keys. Leaves out rows with scores that this kernel cannot hold.
inline void score_kv_block(TaskState& state, std::int64_t kv_block_key, const KvBlock& kv_block) {
  const Arguments& call = state.call;
  const Task& task = state.task;
  const bool past_caches = outgrows_caches(call);
  for (std::int64_t r = 0; r < state.rows; r += kTileRows) {
    for (std::int64_t p = 0; p * kPanel < kv_block.count; ++p) {
      alignas(64) float scores[kTileRows][kPanel];
      ScoreTile tile;
      clear(tile);
      accumulate<F32Format>(tile, state.queries.data + r * state.queries.stride, state.queries.stride,
                            kv_block.keys + p * kPanel * state.w.depth, state.w.depth);
#pragma GCC unroll 4
      for (int i = 0; i < kTileRows; ++i)
#pragma GCC unroll 3
        for (int v = 0; v < kPanelVectors; ++v) store(scores[i] + v * kLanes, tile[i][v]);
      const std::int64_t key = kv_block_key + p * kPanel;
      const std::int64_t here = smaller(kPanel, kv_block.count - p * kPanel);
      for (std::int64_t i = 0; i < kTileRows && r + i < state.rows; ++i) {
        const QueryRow& query_row = state.w.query_row[r + i];
        if (state.w.softmax.left_out[r + i] != 0) continue;
        if (!modify_scores(call, task, query_row, key, scores[i])) {
          leave_out(state, r + i);
          continue;
        }
        const Vf offset = splat(static_cast<float>(
            kLn2 * alibi_offset(call, task.batch, query_row.head, query_row.position, keys_of(task))));
        float* to = static_cast<float*>(call.scores.data) +
                    offset_of(call.scores.stride, task.batch, query_row.head, query_row.index) +
                    (task.key_begin + key) * call.scores.stride[3];
#pragma GCC unroll 3
        for (int v = 0; v < kPanelVectors; ++v) {
          const Vf score = load(scores[i] + v * kLanes);
          const Mask allowed = greater(score, splat(kForbidden));
          // modify_scores raises scores that are too low to have a weight. Such a score exceeds this kernel's
          // range.
          if (any(both(allowed, greater_equal(splat(-kMaxScore), score)))) leave_out(state, r + i);
          store(scores[i] + v * kLanes,
                select(allowed, mul_add(score, splat(static_cast<float>(kLn2)), offset),
                       splat(-__builtin_inff())));
        }
        write_scaled(to, call.scores.stride[3], scores[i], here, 1.0f, past_caches);
      }
    }
  }
}

/// Writes the scores of a task's KV blocks, one row block after the other.
inline void scores_pass(const Arguments& call, const Tiling& tiling, const WeightsTask& pass,
                        void* workspace) {
  const Workspace w = lay_out(call, tiling, workspace);
  for (std::int64_t begin = pass.rows.row_begin; begin < pass.rows.row_end; begin += tiling.rows) {
    Task task = pass.rows;
    task.row_begin = begin;
    task.row_end = smaller(pass.rows.row_end, begin + tiling.rows);
    TaskState state = {context_of(call, task, w)};
    load_rows<F32Format>(state, nullptr);
    for (std::int64_t key = pass.block_begin; key < pass.block_end; key += kKvBlock) {
      count_path(call.paths, Path::scores_pass);
      if (!sees_step(state, {key, smaller(kKvBlock, pass.block_end - key)})) forbid_rows(masked_rows(state));
      score_kv_block(state, key, packed_kv_block<F32Format>(state, key));
      if (outgrows_caches(call)) end_stores_past_caches();
    }
    for (std::int64_t r = 0; r < state.rows; ++r)
      if (state.w.softmax.left_out[r] != 0)
        note_status(state, state.w.query_row[r], cpu::RowStatus::out_of_range);
  }
}

}  // namespace heed::detail::HEED_ISA
