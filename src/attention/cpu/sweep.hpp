// The second pass, for what needs the final sums: full weights, what each key received, and scores. A task is
// some chunks of keys of one head against all rows of its segment, so that every key's sum belongs to one
// task and is added up in the order of the rows.
#pragma once

#include "attention/cpu/forward.hpp"

namespace heed::detail::HEED_ISA {

using cpu::SweepTask;

inline constexpr std::int64_t kSweepChunks = 4;  // at most, a task: a block of rows is set up for each
inline constexpr std::int64_t kSweepKeyBytes = 1 << 20;  // for their packed keys

/// A sweep's own sizes: one block of rows, and the keys of a task, which all stay packed.
inline Tiling plan_sweep(const Call& call) {
  const std::int64_t chunk_bytes = static_cast<std::int64_t>(sizeof(float)) * kChunk * call.head_dim;
  const std::int64_t chunks = larger(1, smaller(kSweepChunks, kSweepKeyBytes / chunk_bytes));
  Tiling tiling;
  tiling.rows = smaller(kBlockRows, round_up(larger(1, call.query_length), kGroupRows));
  tiling.step = kChunk;
  tiling.cached_keys = chunks * kChunk;
  tiling.bytes = lay_out(call, tiling, nullptr).bytes;
  return tiling;
}

/// What each key of a task received. Sums of many small terms: Kahan's compensation keeps the error
/// independent of how many blocks of rows there are (Kahan 1965).
struct KeySums {
  alignas(64) float sum[kSweepChunks * kChunk];
  alignas(64) float lost[kSweepChunks * kChunk];
};

inline void clear(KeySums& sums, std::int64_t keys) {
  for (std::int64_t k = 0; k < keys; k += kLanes) {
    store(sums.sum + k, zero());
    store(sums.lost + k, zero());
  }
}

/// sums[key, key + count) += terms [count].
inline void add_terms(KeySums& sums, std::int64_t key, const float* terms, std::int64_t count) {
  for (std::int64_t k = 0; k < count; k += kLanes) {
    const Vf sum = load(sums.sum + key + k);
    const Vf term = sub(load(terms + k), load(sums.lost + key + k));
    const Vf next = add(sum, term);
    store(sums.lost + key + k, sub(sub(next, sum), term));
    store(sums.sum + key + k, next);
  }
}

inline void write_sums(const Output& out, const SweepTask& sweep, const KeySums& sums) {
  if (!out.data) return;
  const Task& task = sweep.rows;
  float* to = static_cast<float*>(out.data) + task.batch * out.stride[0] + task.head_begin * out.stride[1];
  const std::int64_t count = sweep.block_end - sweep.block_begin;
  for (std::int64_t k = 0; k < count; ++k)
    to[(task.key_begin + sweep.block_begin + k) * out.stride[2]] = sums.sum[k];
}

/// Sets up the rows of a block: sites, queries, the shifts that the forward pass ended with, and what their
/// weights are multiplied by. Scores have neither (inverse == nullptr).
inline void start_sweep_rows(Run& run, float* inverse) {
  const Call& call = run.call;
  const Task& task = run.task;
  Work& w = run.w;
  for (std::int64_t r = 0; r < run.rows; ++r)
    w.site[r] = site_of(call, task, task.head_begin, task.row_begin + r);
  pad_rows(run);
  find_groups(run, true);
  find_queries(run);
  const auto kept = [&](const Output& rows, std::int64_t r) {
    return static_cast<const float*>(
        rows.data)[offset_of(rows.stride, task.batch, task.head_begin, task.row_begin + r)];
  };
  for (std::int64_t r = 0; r < run.padded_rows; ++r) {
    const bool known = inverse != nullptr && r < run.rows;
    w.rows.shift[r] = known ? kept(call.row_shift, r) : 0;
    if (known) inverse[r] = kept(call.row_inverse, r);
    w.rows.threshold[r] = kNoThreshold;
    store(w.rows.sum + r * kLanes, zero());
  }
  const cpu::RowStatus* status =
      call.row_status + (task.batch * call.heads + task.head_begin) * call.query_length + task.row_begin;
  for (std::int64_t r = 0; inverse != nullptr && r < run.rows; ++r)
    if (status[r] == cpu::RowStatus::out_of_range) leave_out(run, r);
}

/// sums [kWide vectors] += the same vectors of `weights` (rows kChunk apart), times each row's factor.
template <std::size_t kWide>
HEED_INLINE void sum_vectors(const float* weights, const float* factors, std::int64_t rows, float* sums) {
  Vf sum[kWide];
#pragma GCC unroll 3
  for (std::size_t v = 0; v < kWide; ++v) sum[v] = load(sums + v * kLanes);
  for (std::int64_t r = 0; r < rows; ++r) {
    const Vf factor = splat(factors[r]);
#pragma GCC unroll 3
    for (std::size_t v = 0; v < kWide; ++v)
      sum[v] = mul_add(load(weights + r * kChunk + v * kLanes), factor, sum[v]);
  }
#pragma GCC unroll 3
  for (std::size_t v = 0; v < kWide; ++v) store(sums + v * kLanes, sum[v]);
}

/// sums [kChunk] = the weights of rows [begin, end) of the block, added up. In the order of the rows,
/// whatever tiles they came from; at most kBlockRows terms, so plainly.
inline void sum_rows(const Run& run, std::int64_t begin, std::int64_t end, const float* inverse,
                     std::int64_t chunk_key, std::int64_t count, float* sums) {
  for (std::int64_t k = 0; k < kChunk; k += kLanes) store(sums + k, zero());
  for (std::int64_t group = begin / kGroupRows; group * kGroupRows < end; ++group) {
    const KeyRange keys = written_keys(run.w.group[group], chunk_key, count);
    const std::int64_t first = larger(begin, group * kGroupRows);
    const std::int64_t rows = smaller(end, (group + 1) * kGroupRows) - first;
    const float* weights = run.w.weights + first * kChunk;
    std::int64_t k = keys.begin;
    for (; k + kPanel <= keys.end; k += kPanel)
      sum_vectors<kPanelVectors>(weights + k, inverse + first, rows, sums + k);
    for (; k < keys.end; k += kLanes) sum_vectors<1>(weights + k, inverse + first, rows, sums + k);
  }
}

/// Whether a head's matrix of weights is too large to be still in a cache when it is read.
inline bool outgrows_caches(const Call& call) {
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

/// Where a row's weights of the keys from `key` on go.
inline float* weights_at(const Run& run, std::int64_t row, std::int64_t key) {
  const Output& out = run.call.weights;
  const Task& task = run.task;
  return static_cast<float*>(out.data) +
         offset_of(out.stride, task.batch, task.head_begin, task.row_begin + row) +
         (task.key_begin + key) * out.stride[3];
}

inline void forbid_weights(const Run& run, std::int64_t key, std::int64_t count) {
  for (std::int64_t r = 0; r < run.rows; ++r)
    write_zeros(weights_at(run, r, key), run.call.weights.stride[3], count);
}

/// The block's rows of the matrix of weights, for one chunk.
inline void write_weights(const Run& run, const float* inverse, std::int64_t chunk_key, std::int64_t count) {
  const std::int64_t stride = run.call.weights.stride[3];
  const bool past_caches = outgrows_caches(run.call);
  for (std::int64_t r = 0; r < run.rows; ++r) {
    float* to = weights_at(run, r, chunk_key);
    const KeyRange keys = written_keys(run.w.group[r / kGroupRows], chunk_key, count);
    const std::int64_t begin = keys.begin;
    const std::int64_t end = smaller(count, keys.end);
    write_zeros(to, stride, begin);
    write_scaled(to + begin * stride, stride, run.w.weights + r * kChunk + begin, end - begin, inverse[r],
                 past_caches);
    write_zeros(to + end * stride, stride, count - end);
  }
  if (past_caches) end_stores_past_caches();
}

/// The keys of a segment that the block's rows may see at most: positions rise with the rows, and both ends
/// of what a row may see rise with its position.
inline KeyRange keys_of_block(const Run& run) {
  const Task& task = run.task;
  return {site_of(run.call, task, task.head_begin, task.row_begin).low,
          site_of(run.call, task, task.head_begin, task.row_end - 1).high};
}

/// The weights of a task's chunks, row block by row block. Chunks that none of a block's rows may see cost
/// nothing but the zeros of the matrix.
inline void sweep_weights(const Call& call, const Tiling& tiling, const SweepTask& sweep, void* workspace) {
  const Work w = lay_out(call, tiling, workspace);
  const bool transforms = transforms_scores(call);
  const bool pairs = kHasPairs && call.query.type == Type::bf16;
  const auto find_chunk = pairs ? packed_chunk<kHasPairs> : packed_chunk<false>;
  KeySums received, received_last;
  if (call.received.data) clear(received, sweep.block_end - sweep.block_begin);
  if (call.received_last.data) clear(received_last, sweep.block_end - sweep.block_begin);
  alignas(64) float sums[kChunk];
  alignas(64) float inverse[kBlockRows];
  for (std::int64_t begin = sweep.rows.row_begin; begin < sweep.rows.row_end; begin += tiling.rows) {
    Task task = sweep.rows;
    task.row_begin = begin;
    task.row_end = smaller(sweep.rows.row_end, begin + tiling.rows);
    Run run = {call, task, w, task.row_end - begin, 0, transforms, true, false, pairs, {}, 0};
    run.padded_rows = round_up(run.rows, kTileRows);
    const KeyRange seen = keys_of_block(run);
    bool started = false;
    for (std::int64_t key = sweep.block_begin; key < sweep.block_end; key += kChunk) {
      const std::int64_t count = smaller(kChunk, sweep.block_end - key);
      if (seen.begin >= key + count || seen.end <= key) {
        count_path(call.paths, Path::weights_pass_unseen);
        if (call.weights.data) forbid_weights(run, key, count);
        continue;
      }
      if (!started) start_sweep_rows(run, inverse);
      started = true;
      count_path(call.paths, Path::weights_pass);
      const Chunk chunk = find_chunk(call, task, run.w, key);
      score_block(run, 0, run.padded_rows, key, chunk);
      if (call.weights.data) write_weights(run, inverse, key, count);
      const auto receive = [&](KeySums& to, std::int64_t first) {
        sum_rows(run, first, run.rows, inverse, key, count, sums);
        add_terms(to, key - sweep.block_begin, sums, count);
      };
      if (call.received.data) receive(received, 0);
      const std::int64_t last = task.segment_row_end - call.received_last_rows - begin;
      if (call.received_last.data && last < run.rows) receive(received_last, larger(0, last));
    }
  }
  write_sums(call.received, sweep, received);
  write_sums(call.received_last, sweep, received_last);
}

/// Scores of a block for one chunk at the stage asked for, in natural units; -inf where a key is forbidden.
/// Rows with scores that this kernel cannot hold are left out.
inline void score_chunk(Run& run, std::int64_t chunk_key, const Chunk& chunk) {
  const Call& call = run.call;
  const Task& task = run.task;
  const std::int64_t keys = task.key_end - task.key_begin;
  const bool past_caches = outgrows_caches(call);
  for (std::int64_t r = 0; r < run.rows; r += kTileRows) {
    for (std::int64_t p = 0; p * kPanel < chunk.count; ++p) {
      alignas(64) float scores[kTileRows][kPanel];
      ScoreTile tile;
      clear(tile);
      accumulate<false>(tile, run.queries.data + r * run.queries.stride, run.queries.stride,
                        chunk.keys + p * kPanel * run.w.depth, run.w.depth);
#pragma GCC unroll 4
      for (int i = 0; i < kTileRows; ++i)
#pragma GCC unroll 3
        for (int v = 0; v < kPanelVectors; ++v) store(scores[i] + v * kLanes, tile[i][v]);
      const std::int64_t key = chunk_key + p * kPanel;
      const std::int64_t here = smaller(kPanel, chunk.count - p * kPanel);
      for (std::int64_t i = 0; i < kTileRows && r + i < run.rows; ++i) {
        const Site& site = run.w.site[r + i];
        if (run.w.left_out[r + i] != 0) continue;
        if (!transform_row(call, task.batch, site, task.key_begin, keys, key, scores[i])) {
          leave_out(run, r + i);
          continue;
        }
        const Vf offset =
            splat(static_cast<float>(kLn2 * alibi_offset(call, task.batch, site.head, site.position, keys)));
        float* to = static_cast<float*>(call.scores.data) +
                    offset_of(call.scores.stride, task.batch, site.head, site.index) +
                    (task.key_begin + key) * call.scores.stride[3];
#pragma GCC unroll 3
        for (int v = 0; v < kPanelVectors; ++v) {
          const Vf score = load(scores[i] + v * kLanes);
          const Mask allowed = greater(score, splat(kForbidden));
          // transform_row raises what is too low to weigh anything: such a score is beyond this kernel.
          if (any(both(allowed, greater_equal(splat(-kLargestScore), score)))) leave_out(run, r + i);
          store(scores[i] + v * kLanes,
                select(allowed, mul_add(score, splat(static_cast<float>(kLn2)), offset),
                       splat(-__builtin_inff())));
        }
        write_scaled(to, call.scores.stride[3], scores[i], here, 1.0f, past_caches);
      }
    }
  }
}

/// The scores of a task's chunks, row block by row block.
inline void sweep_scores(const Call& call, const Tiling& tiling, const SweepTask& sweep, void* workspace) {
  const Work w = lay_out(call, tiling, workspace);
  for (std::int64_t begin = sweep.rows.row_begin; begin < sweep.rows.row_end; begin += tiling.rows) {
    Task task = sweep.rows;
    task.row_begin = begin;
    task.row_end = smaller(sweep.rows.row_end, begin + tiling.rows);
    Run run = {call, task, w, task.row_end - begin, 0, true, true, false, false, {}, 0};
    run.padded_rows = round_up(run.rows, kTileRows);
    start_sweep_rows(run, nullptr);
    for (std::int64_t key = sweep.block_begin; key < sweep.block_end; key += kChunk) {
      count_path(call.paths, Path::scores_pass);
      score_chunk(run, key, packed_chunk<false>(call, task, run.w, key));
      if (outgrows_caches(call)) end_stores_past_caches();
    }
    for (std::int64_t r = 0; r < run.rows; ++r)
      if (run.w.left_out[r] != 0) note_status(run, run.w.site[r], cpu::RowStatus::out_of_range);
  }
}

}  // namespace heed::detail::HEED_ISA
