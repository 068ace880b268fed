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

/// Rows beyond the last, up to a whole tile, repeat its site and have queries of 0.
inline void pad_rows(Run& run) {
  Work& w = run.w;
  for (std::int64_t r = run.rows; r < run.padded_rows; ++r) {
    w.site[r] = w.site[run.rows - 1];
    for (std::int64_t d = 0; d < w.padded_depth; d += kLanes) store(w.query + r * w.padded_depth + d, zero());
  }
}

inline void find_groups(Run& run, bool started) {
  for (std::int64_t r = 0; r < run.padded_rows; r += kGroupRows)
    run.w.group[r / kGroupRows] = group_of(run.w.site + r, smaller(kGroupRows, run.padded_rows - r), started);
}

inline void clear_observers(Run& run) {
  const Call& call = run.call;
  for (std::int64_t r = 0; r < run.rows; ++r) {
    if (call.distance.data) store(run.w.distance + r * kLanes, zero());
    if (call.top_k > 0)
      TopK{run.w.top_weight + r * call.top_k, run.w.top_key + r * call.top_k, call.top_k}.clear();
  }
  for (std::int64_t i = 0; i < run.rows * call.map_columns; ++i) run.w.bins[i] = 0;
}

/// Sets up sites, queries and states of the task's rows. Returns the largest sum of squares of a query, or a
/// negative number where one is not finite.
inline float start_rows(Run& run) {
  const Call& call = run.call;
  const Task& task = run.task;
  Work& w = run.w;
  float largest = 0;
  float total = 0;
  std::int64_t r = 0;
  for (std::int64_t head = task.head_begin; head < task.head_begin + task.head_count; ++head)
    for (std::int64_t index = task.row_begin; index < task.row_end; ++index, ++r) {
      w.site[r] = site_of(call, task, head, index);
      const float squares = pack_query(call.query, offset_of(call.query.stride, task.batch, head, index),
                                       w.depth, call.scale, w.query + r * w.padded_depth, w.padded_depth);
      largest = squares > largest ? squares : largest;
      total += squares;
    }
  pad_rows(run);
  for (r = 0; r < run.padded_rows; ++r) {
    w.rows.shift[r] = 0;
    w.rows.threshold[r] = run.tracked ? kUnstarted : kNoThreshold;
    store(w.rows.sum + r * kLanes, zero());
    store(w.rows.entropy + r * kLanes, zero());
    store(w.rows.max + r * kLanes, splat(kForbidden));
  }
  clear_observers(run);
  for (std::int64_t i = 0; i < run.padded_rows * w.value_columns; i += kLanes) store(w.output + i, zero());
  find_groups(run, !run.tracked);
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
      weigh_row<Column{true, true, false}>(score, w.rows, at, row_weights);
    } else {
      weigh_row<Column{true, false, false}>(score, w.rows, at, row_weights);
    }
  }
  return true;
}

/// score_column for what the run needs. The end of a sequence, where a panel holds fewer keys, is rare enough
/// to share one variant.
inline std::int64_t score_tiles(const Run& run, std::int64_t row, std::int64_t tiles, const float* panel,
                                std::int64_t keys, float* weights) {
  const Work& w = run.w;
  constexpr Column kTail = {true, true, true};
  constexpr std::size_t kFull = kPanelVectors;
  const std::int64_t vectors = (keys + kLanes - 1) / kLanes;
  const std::int64_t last_keys = keys - (vectors - 1) * kLanes;
  auto column = score_column<Column{false, false, false}, kFull>;
  if (keys < kPanel) {
    column = vectors == 1   ? score_column<kTail, 1>
             : vectors == 2 ? score_column<kTail, 2>
                            : score_column<kTail, 3>;
  } else if (run.tracked) {
    column = run.observed ? score_column<Column{true, true, false}, kFull>
                          : score_column<Column{true, false, false}, kFull>;
  } else if (run.observed) {
    column = score_column<Column{false, true, false}, kFull>;
  }
  return column(w.query + row * w.padded_depth, w.padded_depth, panel, w.depth, w.rows, row, tiles, weights,
                kChunk, last_keys);
}

/// Weights of a block of `rows` rows from `row` on for one chunk.
inline bool score_block(Run& run, std::int64_t row, std::int64_t rows, std::int64_t chunk_key,
                        const Chunk& chunk) {
  Group* groups = run.w.group + row / kGroupRows;
  const std::int64_t count = (rows + kGroupRows - 1) / kGroupRows;
  for (std::int64_t p = 0; p * kPanel < chunk.count; ++p) {
    const std::int64_t key = chunk_key + p * kPanel;
    const std::int64_t keys = smaller(kPanel, chunk.count - p * kPanel);
    const float* panel = chunk.keys + p * kPanel * run.w.depth;
    const auto is_plain = [&](const Group& g) {
      return !run.transforms && g.started && g.inner_low <= key && g.inner_high >= key + keys;
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
      const std::int64_t tiles = (smaller(end * kGroupRows, rows) - g * kGroupRows) / kTileRows;
      for (std::int64_t t = 0; t < tiles; ++t) {
        const std::int64_t at = g * kGroupRows + t * kTileRows;
        float* weights = run.w.weights + at * kChunk + p * kPanel;
        if (plain) {
          t += score_tiles(run, row + at, tiles - t, panel, keys, weights);
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

/// One group (or what is left of one: 4 or 8 rows) times one column panel of values.
template <int kVectors>
void group_values(std::int64_t rows, const float* weights, const float* values, std::int64_t keys,
                  float* output, std::int64_t ldo) {
  constexpr int kTall = kVectors <= (kRegisters >= 32 ? 2 : 1) ? kGroupRows : kValueRows;
  std::int64_t r = 0;
  if (rows == kGroupRows)
    for (; r < rows; r += kTall)
      value_tile<kTall, kVectors>(weights + r * kChunk, kChunk, values, keys, output + r * ldo, ldo);
  for (; r < rows; r += kTileRows)
    value_tile<kTileRows, kVectors>(weights + r * kChunk, kChunk, values, keys, output + r * ldo, ldo);
}

/// Adds weights x values of a block for one chunk to the output.
inline void value_block(Run& run, std::int64_t row, std::int64_t rows, std::int64_t chunk_key,
                        const Chunk& chunk) {
  const Work& w = run.w;
  const std::int64_t vectors = w.value_columns / kLanes;
  for (std::int64_t first = 0; first < vectors; first += kValueVectors) {
    const std::int64_t here = smaller(kValueVectors, vectors - first);
    const auto multiply = here == 1   ? group_values<1>
                          : here == 2 ? group_values<2>
                          : here == 3 ? group_values<3>
                                      : group_values<4>;
    const float* values = chunk.values + first * kLanes * chunk.count;
    for (std::int64_t r = 0; r < rows; r += kGroupRows) {
      const Group& group = w.group[(row + r) / kGroupRows];
      // Weights exist from the panel of the first allowed key on.
      const std::int64_t begin = larger(0, group.low - chunk_key) / kPanel * kPanel;
      const std::int64_t end = smaller(chunk.count, group.high - chunk_key);
      if (begin >= end) continue;
      multiply(smaller(kGroupRows, rows - r), w.weights + r * kChunk + begin, values + begin * here * kLanes,
               end - begin, w.output + (row + r) * w.value_columns + first * kLanes, w.value_columns);
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
    if (!score_block(run, row, rows, chunk_key, chunk)) return false;
    observe_block(run, row, rows, chunk_key, chunk);
    if (run.call.output.data) value_block(run, row, rows, chunk_key, chunk);
  }
  return true;
}

inline Outcome forward(const Call& call, const Tiling& tiling, const Task& task, void* workspace) {
  Run run = {call,  task, lay_out(call, tiling.rows, tiling.cached_keys, workspace), 0, 0, false,
             false, false};
  run.rows = task.head_count * (task.row_end - task.row_begin);
  run.padded_rows = round_up(run.rows, kTileRows);
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
