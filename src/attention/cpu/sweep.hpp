// The second pass, for what needs the final sums: full weights, what each key received, and scores. A task is
// one chunk of keys of one head against all rows of its segment, so that every key's sum belongs to one task
// and is added up in the order of the rows.
#pragma once

#include "attention/cpu/forward.hpp"

namespace heed::detail::HEED_ISA {

using cpu::SweepTask;

/// Sums of many small terms: Kahan's compensation keeps the error independent of how many (Kahan 1965).
struct KeySums {
  alignas(64) float sum[kChunk];
  alignas(64) float lost[kChunk];
};

inline void clear(KeySums& sums) {
  for (std::int64_t k = 0; k < kChunk; k += kLanes) {
    store(sums.sum + k, zero());
    store(sums.lost + k, zero());
  }
}

HEED_INLINE void add_weights(KeySums& sums, std::int64_t k, Vf w) {
  const Vf sum = load(sums.sum + k);
  const Vf term = sub(w, load(sums.lost + k));
  const Vf next = add(sum, term);
  store(sums.lost + k, sub(sub(next, sum), term));
  store(sums.sum + k, next);
}

/// A block of rows for a sweep: sites, queries, and the shifts that the forward pass ended with.
inline void start_sweep_rows(Run& run, bool with_shifts) {
  const Call& call = run.call;
  const Task& task = run.task;
  Work& w = run.w;
  for (std::int64_t r = 0; r < run.rows; ++r) {
    const std::int64_t index = task.row_begin + r;
    w.site[r] = site_of(call, task, task.head_begin, index);
    pack_query(call.query, offset_of(call.query.stride, task.batch, task.head_begin, index), w.depth,
               call.scale, w.query + r * w.padded_depth, w.padded_depth);
  }
  pad_rows(run);
  for (std::int64_t r = 0; r < run.padded_rows; ++r) {
    w.rows.shift[r] = 0;
    if (with_shifts && r < run.rows)
      w.rows.shift[r] = static_cast<const float*>(call.row_shift.data)[offset_of(
          call.row_shift.stride, task.batch, task.head_begin, w.site[r].index)];
    w.rows.threshold[r] = kNoThreshold;
    store(w.rows.sum + r * kLanes, zero());
    store(w.rows.entropy + r * kLanes, zero());
    store(w.rows.max + r * kLanes, splat(kForbidden));
  }
  find_groups(run, true);
}

/// Weights of row `at` for keys [0, count) of the chunk: those in flight times 1 / sum, 0 where the row's
/// masks by position forbid. Written to the weights matrix and added to what keys receive.
inline void use_row(const Run& run, std::int64_t at, const float* flight, std::int64_t chunk_key,
                    std::int64_t count, KeySums* received, KeySums* received_last) {
  const Call& call = run.call;
  const Site& site = run.w.site[at];
  const std::int64_t row = offset_of(call.row_inverse.stride, run.task.batch, site.head, site.index);
  const Vf inverse = splat(static_cast<const float*>(call.row_inverse.data)[row]);
  const float low = static_cast<float>(larger(0, smaller(kChunk, site.low - chunk_key)));
  const float high = static_cast<float>(larger(0, smaller(kChunk, site.high - chunk_key)));
  const bool last = site.index >= run.task.segment_row_end - call.received_last_rows;
  float* matrix = nullptr;
  if (call.weights.data)
    matrix = static_cast<float*>(call.weights.data) +
             offset_of(call.weights.stride, run.task.batch, site.head, site.index) +
             (run.task.key_begin + chunk_key) * call.weights.stride[3];
  for (std::int64_t k = 0; k < count; k += kLanes) {
    const Vf lane = add(lane_numbers(), splat(static_cast<float>(k)));
    const Mask allowed = both(greater_equal(lane, splat(low)), greater(splat(high), lane));
    const Vf w = keep(allowed, mul(load(flight + k), inverse));
    if (received) add_weights(*received, k, w);
    if (received_last && last) add_weights(*received_last, k, w);
    if (!matrix) continue;
    const std::int64_t here = smaller(kLanes, count - k);
    if (call.weights.stride[3] == 1) {
      if (here == kLanes)
        store(matrix + k, w);
      else
        store_first(matrix + k, here, w);
    } else {
      alignas(64) float lanes[kLanes];
      store(lanes, w);
      for (std::int64_t i = 0; i < here; ++i) matrix[(k + i) * call.weights.stride[3]] = lanes[i];
    }
  }
}

inline void write_sums(const Output& out, const Task& task, std::int64_t chunk_key, std::int64_t count,
                       const KeySums& sums) {
  if (!out.data) return;
  float* to = static_cast<float*>(out.data) + task.batch * out.stride[0] + task.head_begin * out.stride[1];
  for (std::int64_t k = 0; k < count; ++k) to[(task.key_begin + chunk_key + k) * out.stride[2]] = sums.sum[k];
}

/// The weights of a chunk, row block by row block.
inline Outcome sweep_weights(const Call& call, const Tiling& tiling, const SweepTask& sweep,
                             void* workspace) {
  const Work w = lay_out(call, tiling, workspace);
  KeySums received, received_last;
  clear(received);
  clear(received_last);
  std::int64_t count = 0;
  for (std::int64_t begin = sweep.rows.row_begin; begin < sweep.rows.row_end; begin += kBlockRows) {
    Task task = sweep.rows;
    task.row_begin = begin;
    task.row_end = smaller(sweep.rows.row_end, begin + smaller(kBlockRows, tiling.rows));
    Run run = {call, task, w, task.row_end - begin, 0, transforms_scores(call), true, false, false, 0};
    run.padded_rows = round_up(run.rows, kTileRows);
    start_sweep_rows(run, true);
    const Chunk chunk = packed_chunk<false>(call, task, run.w, sweep.block_begin);
    count = chunk.count;
    // Tiles that no row may see are not computed: what the last block left there is masked out in use_row.
    if (!score_block(run, 0, run.padded_rows, sweep.block_begin, chunk)) return Outcome::out_of_range;
    for (std::int64_t r = 0; r < run.rows; ++r)
      use_row(run, r, run.w.weights + r * kChunk, sweep.block_begin, count,
              call.received.data ? &received : nullptr, call.received_last.data ? &received_last : nullptr);
  }
  write_sums(call.received, sweep.rows, sweep.block_begin, count, received);
  write_sums(call.received_last, sweep.rows, sweep.block_begin, count, received_last);
  return Outcome::done;
}

/// The scores of a chunk at the stage asked for, in natural units; -inf where a key is forbidden.
inline Outcome sweep_scores(const Call& call, const Tiling& tiling, const SweepTask& sweep, void* workspace) {
  const Work w = lay_out(call, tiling, workspace);
  const std::int64_t keys = sweep.rows.key_end - sweep.rows.key_begin;
  for (std::int64_t begin = sweep.rows.row_begin; begin < sweep.rows.row_end; begin += kBlockRows) {
    Task task = sweep.rows;
    task.row_begin = begin;
    task.row_end = smaller(sweep.rows.row_end, begin + smaller(kBlockRows, tiling.rows));
    Run run = {call, task, w, task.row_end - begin, 0, true, true, false, false, 0};
    run.padded_rows = round_up(run.rows, kTileRows);
    start_sweep_rows(run, false);
    const Chunk chunk = packed_chunk<false>(call, task, run.w, sweep.block_begin);
    for (std::int64_t r = 0; r < run.rows; r += kTileRows) {
      for (std::int64_t p = 0; p * kPanel < chunk.count; ++p) {
        alignas(64) float scores[kTileRows][kPanel];
        ScoreTile tile;
        clear(tile);
        accumulate<false>(tile, run.w.query + r * run.w.padded_depth, run.w.padded_depth,
                          chunk.keys + p * kPanel * run.w.depth, run.w.depth);
#pragma GCC unroll 4
        for (int i = 0; i < kTileRows; ++i)
#pragma GCC unroll 3
          for (int v = 0; v < kPanelVectors; ++v) store(scores[i] + v * kLanes, tile[i][v]);
        const std::int64_t key = sweep.block_begin + p * kPanel;
        const std::int64_t here = smaller(kPanel, chunk.count - p * kPanel);
        for (std::int64_t i = 0; i < kTileRows && r + i < run.rows; ++i) {
          const Site& site = run.w.site[r + i];
          if (!transform_row(call, task.batch, site, task.key_begin, keys, key, scores[i]))
            return Outcome::out_of_range;
          float* to = static_cast<float*>(call.scores.data) +
                      offset_of(call.scores.stride, task.batch, site.head, site.index) +
                      (task.key_begin + key) * call.scores.stride[3];
          for (std::int64_t k = 0; k < here; ++k)
            to[k * call.scores.stride[3]] =
                scores[i][k] == kForbidden ? -__builtin_inff() : scores[i][k] * static_cast<float>(kLn2);
        }
      }
    }
  }
  return Outcome::done;
}

}  // namespace heed::detail::HEED_ISA
