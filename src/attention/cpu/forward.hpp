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

#include "attention/cpu/finish.hpp"
#include "attention/cpu/observe.hpp"
#include "attention/cpu/tiles.hpp"
#include "attention/cpu/transform.hpp"
#include "attention/cpu/work.hpp"

namespace heed::detail::HEED_ISA {

using cpu::Outcome;

inline constexpr float kBoundedScore = 40.0f;
inline constexpr float kHeadroom = 8.0f;              // a shift moves when a score exceeds it by more
inline constexpr float kUnstarted = -1.5f * 0x1p20f;  // threshold of a row without keys: above kForbidden
inline constexpr float kNoThreshold = 0x1p30f;        // above every score

/// Sets up sites, queries and states of the task's rows. Returns the largest sum of squares of a query, or a
/// negative number where one is not finite.
inline float start_rows(Run& run) {
  const Call& call = run.call;
  const Task& task = run.task;
  Work& w = run.w;
  const std::int64_t per_head = task.row_end - task.row_begin;
  float largest = 0;
  float total = 0;
  for (std::int64_t r = 0; r < run.padded_rows; ++r) {
    float* query = w.query + r * w.padded_depth;
    if (r < run.rows) {
      const std::int64_t head = task.head_begin + r / per_head;
      const std::int64_t index = task.row_begin + r % per_head;
      w.site[r] = site_of(call, task, head, index);
      const float squares = pack_query(call.query, offset_of(call.query.stride, task.batch, head, index),
                                       w.depth, call.scale, query, w.padded_depth);
      largest = squares > largest ? squares : largest;
      total += squares;
    } else {
      w.site[r] = w.site[run.rows - 1];
      for (std::int64_t d = 0; d < w.padded_depth; d += kLanes) store(query + d, zero());
    }
    w.rows.shift[r] = 0;
    w.rows.threshold[r] = run.tracked ? kUnstarted : kNoThreshold;
    store(w.rows.sum + r * kLanes, zero());
    store(w.rows.entropy + r * kLanes, zero());
    store(w.rows.max + r * kLanes, splat(kForbidden));
    if (call.distance.data) store(w.distance + r * kLanes, zero());
    if (call.top_k > 0) TopK{w.top_weight + r * call.top_k, w.top_key + r * call.top_k, call.top_k}.clear();
    for (std::int64_t c = 0; c < call.map_columns; ++c) w.bins[r * call.map_columns + c] = 0;
  }
  for (std::int64_t i = 0; i < run.padded_rows * w.value_columns; i += kLanes) store(w.output + i, zero());
  for (std::int64_t r = 0; r < run.padded_rows; r += kGroupRows)
    w.group[r / kGroupRows] = group_of(w.site + r, !run.tracked);
  return total < 0x1p120f ? largest : -1.0f;
}

/// From here on shifts move: rows that have weights keep their shift of 0, and those that have none wait for
/// a key.
inline void start_tracking(Run& run) {
  run.tracked = true;
  for (std::int64_t r = 0; r < run.padded_rows; ++r) {
    const bool started = reduce_add(load(run.w.rows.sum + r * kLanes)) > 0;
    run.w.rows.threshold[r] = started ? kHeadroom : kUnstarted;
    if (!started) run.w.group[r / kGroupRows].started = false;
  }
}

HEED_INLINE void scale_row(float* x, std::int64_t count, float factor) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(x + i, mul(load(x + i), splat(factor)));
  for (; i < count; ++i) x[i] *= factor;
}

/// Moves a row's shift up to its new largest score. `weights` [done]: the row's weights of this chunk so far.
inline void raise(Run& run, std::int64_t row, float score, float* weights, std::int64_t done) {
  Work& w = run.w;
  const bool started = w.rows.threshold[row] > kUnstarted;
  const float old = w.rows.shift[row];
  const float shift = __builtin_rintf(score);
  w.rows.shift[row] = shift;
  w.rows.threshold[row] = shift + kHeadroom;
  if (!started) return;
  const float step = old - shift;
  const float factor =
      step < -140.0f ? 0.0f : static_cast<float>(__builtin_ldexp(1.0, static_cast<int>(step)));
  float* sum = w.rows.sum + row * kLanes;
  float* entropy = w.rows.entropy + row * kLanes;
  // sum_j w_j (s_j - shift) moves with both its factors.
  const Vf moved = mul_add(load(sum), splat(step), load(entropy));
  store(entropy, factor == 0 ? zero() : mul(moved, splat(factor)));
  scale_row(sum, kLanes, factor);
  scale_row(weights, done, factor);
  if (run.call.output.data) scale_row(w.output + row * w.value_columns, w.value_columns, factor);
  if (run.call.distance.data) scale_row(w.distance + row * kLanes, kLanes, factor);
  if (run.call.map_columns > 0) scale_row(w.bins + row * run.call.map_columns, run.call.map_columns, factor);
  for (std::int64_t i = 0; i < run.call.top_k; ++i) {
    float* weight = w.top_weight + row * run.call.top_k + i;
    if (*weight > 0) *weight *= factor;
  }
}

/// One score tile by way of memory: for tiles that a mask cuts, that need transform_row, or whose scores
/// outgrow their shift. `key`: the panel's first key. `weights` points at the tile's weights of this panel,
/// `done` weights to their left belong to the same chunk.
inline bool score_general(Run& run, std::int64_t row, std::int64_t key, const float* panel, float* weights,
                          std::int64_t done) {
  Work& w = run.w;
  alignas(64) float scores[kTileRows][kPanel];
  {
    ScoreTile tile;
    clear(tile);
    accumulate(tile, w.query + row * w.padded_depth, w.padded_depth, panel, w.depth);
#pragma GCC unroll 4
    for (int r = 0; r < kTileRows; ++r)
#pragma GCC unroll 3
      for (int v = 0; v < kPanelVectors; ++v) store(scores[r] + v * kLanes, tile[r][v]);
  }
  const std::int64_t keys = run.task.key_end - run.task.key_begin;
  for (int r = 0; r < kTileRows; ++r) {
    const std::int64_t at = row + r;
    const Site& site = w.site[at];
    if (run.transforms || site.low > key || site.high < key + kPanel) {
      if (!transform_row(run.call, run.task.batch, site, run.task.key_begin, keys, key, scores[r]))
        return false;
    }
    Vf score[kPanelVectors];
#pragma GCC unroll 3
    for (int v = 0; v < kPanelVectors; ++v) score[v] = load(scores[r] + v * kLanes);
    float* row_weights = weights + r * kChunk;
    const float largest = reduce_max(row_maximum(score));
    if (largest > w.rows.threshold[at]) raise(run, at, largest, row_weights - done, done);
    if (run.observed) {
      float* max = w.rows.max + at * kLanes;
      store(max, maximum(load(max), row_maximum(score)));
      weigh_row<true, true>(score, w.rows, at, row_weights);
    } else {
      weigh_row<true, false>(score, w.rows, at, row_weights);
    }
  }
  return true;
}

inline std::int64_t score_tiles(const Run& run, std::int64_t row, std::int64_t tiles, const float* panel,
                                float* weights) {
  const Work& w = run.w;
  const float* query = w.query + row * w.padded_depth;
  const auto column = run.tracked ? (run.observed ? score_column<true, true> : score_column<true, false>)
                                  : (run.observed ? score_column<false, true> : score_column<false, false>);
  return column(query, w.padded_depth, panel, w.depth, w.rows, row, tiles, weights, kChunk);
}

/// Weights of a block of rows for one chunk; `groups` [count] are the block's, the first at row `row`.
inline bool score_block(Run& run, std::int64_t row, Group* groups, std::int64_t count, std::int64_t chunk_key,
                        const Chunk& chunk) {
  for (std::int64_t p = 0; p * kPanel < chunk.count; ++p) {
    const std::int64_t key = chunk_key + p * kPanel;
    const float* panel = chunk.keys + p * kPanel * run.w.depth;
    const auto is_plain = [&](const Group& g) {
      return !run.transforms && g.started && g.inner_low <= key && g.inner_high >= key + kPanel;
    };
    std::int64_t g = 0;
    while (g < count) {
      if (groups[g].low >= key + kPanel || groups[g].high <= key) {
        ++g;
        continue;
      }
      std::int64_t end = g;
      while (end < count && is_plain(groups[end])) ++end;
      const bool plain = end > g;
      if (!plain) end = g + 1;
      const std::int64_t tiles = (end - g) * (kGroupRows / kTileRows);
      for (std::int64_t t = 0; t < tiles; ++t) {
        const std::int64_t at = g * kGroupRows + t * kTileRows;
        float* weights = run.w.weights + at * kChunk + p * kPanel;
        if (plain) {
          t += score_tiles(run, row + at, tiles - t, panel, weights);
          if (t == tiles) break;
        }
        const std::int64_t tile = g * kGroupRows + t * kTileRows;
        if (!score_general(run, row + tile, key, panel, run.w.weights + tile * kChunk + p * kPanel,
                           p * kPanel))
          return false;
      }
      if (!plain) groups[g].started = true;
      g = end;
    }
  }
  return true;
}

template <int kVectors>
void group_values(const float* weights, const float* values, std::int64_t keys, float* output,
                  std::int64_t ldo) {
  if constexpr (kVectors <= (kRegisters >= 32 ? 2 : 1)) {
    value_tile<kGroupRows, kVectors>(weights, kChunk, values, keys, output, ldo);
  } else {
    for (int r = 0; r < kGroupRows; r += kValueRows)
      value_tile<kValueRows, kVectors>(weights + r * kChunk, kChunk, values, keys, output + r * ldo, ldo);
  }
}

/// Adds weights x values of a block for one chunk to the output.
inline void value_block(Run& run, std::int64_t row, const Group* groups, std::int64_t count,
                        std::int64_t chunk_key, const Chunk& chunk) {
  const Work& w = run.w;
  const std::int64_t vectors = w.value_columns / kLanes;
  for (std::int64_t first = 0; first < vectors; first += kValueVectors) {
    const std::int64_t here = smaller(kValueVectors, vectors - first);
    const float* values = chunk.values + first * kLanes * chunk.count;
    for (std::int64_t g = 0; g < count; ++g) {
      // Weights exist from the panel of the first allowed key on.
      const std::int64_t begin = larger(0, groups[g].low - chunk_key) / kPanel * kPanel;
      const std::int64_t end = smaller(chunk.count, groups[g].high - chunk_key);
      if (begin >= end) continue;
      const float* weights = w.weights + g * kGroupRows * kChunk + begin;
      const float* from = values + begin * here * kLanes;
      float* output = w.output + (row + g * kGroupRows) * w.value_columns + first * kLanes;
      switch (here) {
        case 1:
          group_values<1>(weights, from, end - begin, output, w.value_columns);
          break;
        case 2:
          group_values<2>(weights, from, end - begin, output, w.value_columns);
          break;
        case 3:
          group_values<3>(weights, from, end - begin, output, w.value_columns);
          break;
        default:
          group_values<4>(weights, from, end - begin, output, w.value_columns);
          break;
      }
    }
  }
}

/// Looks at the weights of a block for one chunk on behalf of top-k, distance and map.
inline void observe_block(Run& run, std::int64_t row, std::int64_t rows, std::int64_t chunk_key,
                          const Chunk& chunk) {
  const Call& call = run.call;
  const Work& w = run.w;
  if (call.top_k == 0 && !call.distance.data && call.map_columns == 0) return;
  for (std::int64_t r = 0; r < rows && row + r < run.rows; ++r) {
    const std::int64_t at = row + r;
    const Site& site = w.site[at];
    const std::int64_t begin = larger(0, site.low - chunk_key);
    const std::int64_t count = smaller(chunk.count, site.high - chunk_key) - begin;
    if (count <= 0) continue;
    const float* weights = w.weights + r * kChunk + begin;
    const std::int64_t key = chunk_key + begin;
    if (call.top_k > 0)
      offer({w.top_weight + at * call.top_k, w.top_key + at * call.top_k, call.top_k}, weights, count, key);
    if (call.distance.data) add_distance(w.distance + at * kLanes, weights, count, site.position, key);
    if (call.map_columns > 0)
      add_to_bins(w.bins + at * call.map_columns, call.map_columns, call.key_length, weights, count,
                  run.task.key_begin + key);
  }
}

/// One chunk of keys for all rows of the task.
inline bool attend_chunk(Run& run, std::int64_t chunk_key, float largest_query_square) {
  const Chunk chunk = packed_chunk(run.call, run.task, run.w, chunk_key);
  if (!chunk.measured.keys.in_range || !chunk.measured.values_in_range) return false;
  // The packed queries carry scale * log2(e); 1.001 covers the rounding of the sums of squares.
  const float bound =
      1.001f * __builtin_sqrtf(largest_query_square) * __builtin_sqrtf(chunk.measured.keys.largest_square);
  if (!(bound <= kLargestScore / 2)) return false;
  if (!run.tracked && bound > kBoundedScore) start_tracking(run);

  for (std::int64_t row = 0; row < run.padded_rows; row += kBlockRows) {
    const std::int64_t rows = smaller(kBlockRows, run.padded_rows - row);
    const std::int64_t count = rows / kGroupRows;
    Group* groups = run.w.group + row / kGroupRows;
    if (!score_block(run, row, groups, count, chunk_key, chunk)) return false;
    observe_block(run, row, rows, chunk_key, chunk);
    if (run.call.output.data) value_block(run, row, groups, count, chunk_key, chunk);
  }
  return true;
}

inline Outcome forward(const Call& call, const Tiling& tiling, const Task& task, void* workspace) {
  Run run = {call,  task, lay_out(call, tiling.rows, tiling.cached_keys, workspace), 0, 0, false,
             false, false};
  run.rows = task.head_count * (task.row_end - task.row_begin);
  run.padded_rows = round_up(run.rows, kGroupRows);
  run.transforms = transforms_scores(call);
  run.tracked = run.transforms;
  run.observed = call.entropy.data || call.max_score.data;
  const float largest_query_square = start_rows(run);
  if (largest_query_square < 0) return Outcome::out_of_range;

  std::int64_t low = INT64_MAX;
  std::int64_t high = 0;
  for (std::int64_t r = 0; r < run.rows; ++r) {
    if (run.w.site[r].low >= run.w.site[r].high) continue;
    low = smaller(low, run.w.site[r].low);
    high = larger(high, run.w.site[r].high);
  }
  for (std::int64_t key = low == INT64_MAX ? high : low / kChunk * kChunk; key < high; key += kChunk)
    if (!attend_chunk(run, key, largest_query_square)) return Outcome::out_of_range;
  return finish_rows(run) ? Outcome::done : Outcome::out_of_range;
}

}  // namespace heed::detail::HEED_ISA
