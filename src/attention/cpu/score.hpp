// From scores to weights: shifts that follow the largest score, and the tiles that go by way of memory.
#pragma once

#include "attention/cpu/observers.hpp"
#include "attention/cpu/start.hpp"
#include "attention/cpu/tiles.hpp"
#include "attention/cpu/transform.hpp"
#include "attention/cpu/work.hpp"

namespace heed::detail::HEED_ISA {

/// 2^step, step <= 0, by which sums are multiplied whose shift moves.
inline float power_of(float step) {
  return step < -140.0f ? 0.0f : static_cast<float>(__builtin_ldexp(1.0, static_cast<int>(step)));
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
  count_path(run.call.paths, Path::rescaled);
  const float step = old - shift;
  const float factor = power_of(step);
  float* sum = w.rows.sum + row * kLanes;
  if (run.observed) {
    float* entropy = w.rows.entropy + row * kLanes;
    // sum_j w_j (s_j - shift) moves with both its factors.
    const Vf moved = mul_add(load(sum), splat(step), load(entropy));
    store(entropy, factor == 0 ? zero() : mul(moved, splat(factor)));
  }
  scale_row(sum, kLanes, factor);
  if (run.pairs) scale_row(w.rows.rounded + row * kLanes, kLanes, factor);
  scale_row(weights, done, factor);
  if (run.call.output.data) scale_row(w.output + row * w.value_columns, w.value_columns, factor);
  if (w.step < kChunk) scale_row(w.partial + row * w.value_columns, w.value_columns, factor);
  scale_observed(run, row, factor);
}

/// Raw scores of a tile, in memory, become weights: masks and the like are applied, shifts moved where they
/// must. `key`: the panel's first key. `weights` points at the tile's weights of this panel, `done` weights
/// to their left belong to the same chunk. Rows with scores beyond what f32 holds are left out; `checked`:
/// those of whole panels are looked at too.
template <std::size_t kRows>
void weigh_scores(Run& run, std::int64_t row, std::int64_t key, float (&scores)[kRows][kPanel],
                  float* weights, std::int64_t done, bool checked = false) {
  Work& w = run.w;
  note_from(run, done);
  const std::int64_t keys = run.task.key_end - run.task.key_begin;
  for (int r = 0; r < static_cast<int>(kRows); ++r) {
    const std::int64_t at = row + r;
    const Site& site = w.site[at];
    if (checked || run.transforms || site.low > key || site.high < key + kPanel) {
      if (!transform_row(run.call, run.task.batch, site, run.task.key_begin, keys, key, scores[r])) {
        leave_out(run, at);
        for (int v = 0; v < kPanelVectors; ++v) store(scores[r] + v * kLanes, splat(kForbidden));
      }
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
      if (run.call.top_k > 0)
        weigh_row<Column{true, true, false, false, true}>(score, w.rows, at, row_weights);
      else
        weigh_row<Column{true, true, false, false}>(score, w.rows, at, row_weights);
    } else {
      weigh_row<Column{true, false, false, false}>(score, w.rows, at, row_weights);
    }
  }
}

/// The products of a score tile, scaled.
template <bool kPairs, std::size_t kRows>
HEED_INLINE void accumulate_for(const Run& run, Tile<kRows, kPanelVectors>& tile, const float* query,
                                const float* panel) {
  if constexpr (kPairs) {
    if (run.pairs) {
      accumulate<kPairs>(tile, query, run.queries.stride, panel, (run.w.depth + 1) / 2);
      scale_tile(tile, splat(run.call.scale));
      return;
    }
  }
  accumulate<false>(tile, query, run.queries.stride, panel, run.w.depth);
}

/// One score tile by way of memory: for tiles that a mask cuts, that need transform_row, or whose scores
/// outgrow their shift.
template <std::size_t kRows>
void score_general(Run& run, std::int64_t row, std::int64_t key, const float* panel, float* weights,
                   std::int64_t done) {
  alignas(64) float scores[kRows][kPanel];
  Tile<kRows, kPanelVectors> tile;
  clear(tile);
  accumulate_for<kHasPairs>(run, tile, run.queries.data + row * run.queries.stride, panel);
#pragma GCC unroll 6
  for (int r = 0; r < static_cast<int>(kRows); ++r)
#pragma GCC unroll 3
    for (int v = 0; v < kPanelVectors; ++v) store(scores[r] + v * kLanes, tile[r][v]);
  weigh_scores(run, row, key, scores, weights, done);
}

}  // namespace heed::detail::HEED_ISA
