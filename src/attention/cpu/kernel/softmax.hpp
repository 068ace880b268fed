// From scores to weights: shifts that follow the largest score, and the tiles that go by way of memory.
#pragma once

#include "attention/cpu/kernel/load_queries.hpp"
#include "attention/cpu/kernel/row_statistics.hpp"
#include "attention/cpu/kernel/score_modifiers.hpp"
#include "attention/cpu/kernel/tiles.hpp"
#include "attention/cpu/kernel/workspace.hpp"

namespace heed::detail::HEED_ISA {

/// 2^step, step <= 0, by which sums are multiplied whose shift moves.
inline float power_of(float step) {
  return step < -140.0f ? 0.0f : static_cast<float>(__builtin_ldexp(1.0, static_cast<int>(step)));
}

/// Moves a row's shift up to its new largest score. `weights` [done]: the row's weights of this KV block so
/// far.
inline void rescale_row(TaskState& state, std::int64_t row, float score, float* weights, std::int64_t done) {
  Workspace& w = state.w;
  const bool started = w.rows.threshold[row] > kUnstarted;
  const float old = w.rows.shift[row];
  const float shift = __builtin_rintf(score);
  w.rows.shift[row] = shift;
  w.rows.threshold[row] = shift + kHeadroom;
  if (!started) return;
  count_path(state.call.paths, Path::rescaled);
  const float step = old - shift;
  const float factor = power_of(step);
  float* sum = w.rows.sum + row * kLanes;
  if (state.keeps_statistics) {
    float* entropy = w.rows.entropy + row * kLanes;
    // sum_j w_j (s_j - shift) moves with both its factors.
    const Vf moved = mul_add(load(sum), splat(step), load(entropy));
    store(entropy, factor == 0 ? zero() : mul(moved, splat(factor)));
  }
  scale_row(sum, kLanes, factor);
  if (state.bf16_dot) scale_row(w.rows.rounded + row * kLanes, kLanes, factor);
  scale_row(weights, done, factor);
  if (state.call.output.data) scale_row(w.output + row * w.value_columns, w.value_columns, factor);
  if (w.step < kKvBlock) scale_row(w.partial + row * w.value_columns, w.value_columns, factor);
  rescale_statistics(state, row, factor);
}

/// Raw scores of a tile, in memory, become weights: masks and the like are applied, shifts moved where they
/// must. `key`: the panel's first key. `weights` points at the tile's weights of this panel, `done` weights
/// to their left belong to the same KV block. Rows with scores beyond what f32 holds are left out; `checked`:
/// those of whole panels are looked at too.
template <std::size_t kRows>
void softmax_scores(TaskState& state, std::int64_t row, std::int64_t key, float (&scores)[kRows][kPanel],
                    float* weights, std::int64_t done, bool checked = false) {
  Workspace& w = state.w;
  point_at_candidates(state, done);
  const std::int64_t keys = state.task.key_end - state.task.key_begin;
  for (int r = 0; r < static_cast<int>(kRows); ++r) {
    const std::int64_t at = row + r;
    const QueryRow& query_row = w.query_row[at];
    if (checked || state.modifies_scores || query_row.key_begin > key || query_row.key_end < key + kPanel) {
      if (!modify_scores(state.call, state.task.batch, query_row, state.task.key_begin, keys, key,
                         scores[r])) {
        leave_out(state, at);
        for (int v = 0; v < kPanelVectors; ++v) store(scores[r] + v * kLanes, splat(kForbidden));
      }
    }
    Vf score[kPanelVectors];
#pragma GCC unroll 3
    for (int v = 0; v < kPanelVectors; ++v) score[v] = load(scores[r] + v * kLanes);
    float* row_weights = weights + r * kKvBlock;
    const float largest = reduce_max(row_maximum(score));
    if (largest > w.rows.threshold[at]) rescale_row(state, at, largest, row_weights - done, done);
    if (state.keeps_statistics) {
      float* max = w.rows.max + at * kLanes;
      store(max, maximum(load(max), row_maximum(score)));
      if (state.call.top_k > 0)
        softmax_row<ScoreTraits{true, true, false, false, true}>(score, w.rows, at, row_weights);
      else
        softmax_row<ScoreTraits{true, true, false, false}>(score, w.rows, at, row_weights);
    } else {
      softmax_row<ScoreTraits{true, false, false, false}>(score, w.rows, at, row_weights);
    }
  }
}

/// The products of a score tile, scaled.
template <bool kBf16Dot, std::size_t kRows>
HEED_INLINE void accumulate_for(const TaskState& state, Tile<kRows, kPanelVectors>& tile, const float* query,
                                const float* panel) {
  if constexpr (kBf16Dot) {
    if (state.bf16_dot) {
      accumulate<kBf16Dot>(tile, query, state.queries.stride, panel, (state.w.depth + 1) / 2);
      scale_tile(tile, splat(state.call.scale));
      return;
    }
  }
  accumulate<false>(tile, query, state.queries.stride, panel, state.w.depth);
}

/// One score tile by way of memory: for tiles that a mask cuts, that need modify_scores, or whose scores
/// outgrow their shift.
template <std::size_t kRows>
void score_general(TaskState& state, std::int64_t row, std::int64_t key, const float* panel, float* weights,
                   std::int64_t done) {
  alignas(64) float scores[kRows][kPanel];
  Tile<kRows, kPanelVectors> tile;
  clear(tile);
  accumulate_for<kHasBf16Dot>(state, tile, state.queries.data + row * state.queries.stride, panel);
#pragma GCC unroll 6
  for (int r = 0; r < static_cast<int>(kRows); ++r)
#pragma GCC unroll 3
    for (int v = 0; v < kPanelVectors; ++v) store(scores[r] + v * kLanes, tile[r][v]);
  softmax_scores(state, row, key, scores, weights, done);
}

}  // namespace heed::detail::HEED_ISA
