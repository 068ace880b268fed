// Conversion of scores to weights: shifts that follow the largest score, and tiles that go by way of memory.
#pragma once

#include "attention/kernels/softmax/load_queries.hpp"
#include "attention/kernels/softmax/row_statistics.hpp"
#include "attention/kernels/softmax/score_modifiers.hpp"
#include "attention/kernels/softmax/tiles.hpp"
#include "attention/kernels/softmax/workspace.hpp"

namespace heed::detail::HEED_ISA {

/// A panel of a KV block: `keys` keys from `key` on.
struct PanelKeys {
  const float* data;
  std::int64_t key, keys;
  std::int64_t done;                  ///< number of the KV block's keys before it
  const PanelDecay* decay = nullptr;  ///< of its keys, if tiles add it
};

/// Rescales a row's weights that are already an operand of matrix tiles, when its m moves.
template <class Format>
void scale_split_weights(const TaskState& state, std::int64_t row, std::int64_t done, float factor);

/// Moves a row's m up to its new largest score. `weights` [done] are the row's weights of this KV block so
/// far.
inline void follow_maximum(TaskState& state, std::int64_t row, float score, float* weights,
                           std::int64_t done) {
  const Workspace& w = state.w;
  const bool started = w.softmax.threshold[row] > kUnstarted;
  const float shift = __builtin_rintf(score);
  w.softmax.threshold[row] = shift < kMaxScore - kHeadroom ? shift + kHeadroom : kMaxScore;
  if (!started) {
    w.softmax.shift[row] = shift;
    return;
  }
  count_path(state.call.paths, Path::rescaled);
  const float factor = rescale(w.softmax, row, shift);
  if (kHasMatrixTiles && state.splits_weights) scale_split_weights<UnitFormat>(state, row, done, factor);
  if (state.stores_weights) scale_row(weights, done, factor);
  if (w.step < kKvBlock)
    scale_row(w.partial + row * w.softmax.value_columns, w.softmax.value_columns, factor);
  scale_bins(state, row, factor);
}

/// Converts the raw scores of a tile, in memory, to weights. It applies masks and score modifiers, and moves
/// shifts if necessary. `key` is the panel's first key. `weights` points at the tile's weights of this panel;
/// the `done` weights to their left belong to the same KV block. Rows with scores that exceed f32 are left
/// out. `checked`: scores of whole panels are checked too.
template <std::size_t kRows>
void softmax_scores(TaskState& state, std::int64_t row, std::int64_t key, float (&scores)[kRows][kPanel],
                    float* weights, std::int64_t done, bool checked = false) {
  const Workspace& w = state.w;
  const TileRows tile = tile_rows(state, done);
  for (int r = 0; r < static_cast<int>(kRows); ++r) {
    const std::int64_t at = row + r;
    const QueryRow& query_row = w.query_row[at];
    if (checked || state.modifies_scores || query_row.visible != nullptr || query_row.key_begin > key ||
        query_row.key_end < key + kPanel) {
      if (!modify_scores(state.call, state.task, query_row, key, scores[r])) {
        leave_out(state, at);
        for (int v = 0; v < kPanelVectors; ++v) store(scores[r] + v * kLanes, splat(kForbidden));
      }
    }
    Vf score[kPanelVectors];
#pragma GCC unroll 3
    for (int v = 0; v < kPanelVectors; ++v) score[v] = load(scores[r] + v * kLanes);
    float* row_weights = weights + r * kKvBlock;
    const float largest = reduce_max(row_maximum(score));
    if (largest > w.softmax.threshold[at]) follow_maximum(state, at, largest, row_weights - done, done);
    if (state.keeps_statistics) {
      if (w.softmax.max != nullptr) {
        float* max = w.softmax.max + at * kLanes;
        store(max, maximum(load(max), row_maximum(score)));
      }
      if (state.call.top_k > 0)
        softmax_row<ScoreTraits{true, true, false, true}>(score, tile, at, row_weights);
      else
        softmax_row<ScoreTraits{true, true, false}>(score, tile, at, row_weights);
    } else if (kHasMatrixTiles && state.sums_rounded) {
      softmax_row<ScoreTraits{true, false, false, false, false}>(score, tile, at, row_weights);
    } else {
      softmax_row<ScoreTraits{true, false, false}>(score, tile, at, row_weights);
    }
  }
}

/// Computes one score tile by way of memory. For tiles that a mask cuts, that need modify_scores, or whose
/// scores outgrow their shift.
template <class Format, std::size_t kRows>
void score_general(TaskState& state, std::int64_t row, std::int64_t key, const float* panel, float* weights,
                   std::int64_t done) {
  alignas(64) float scores[kRows][kPanel];
  Tile<kRows, kPanelVectors> tile;
  clear(tile);
  accumulate<Format>(tile, state.queries.data + row * state.queries.stride, state.queries.stride, panel,
                     lanes_of<Format>(state.w.depth));
  if constexpr (Format::kScalesScores) scale_tile(tile, splat(state.call.log2_scale));
#pragma GCC unroll 6
  for (int r = 0; r < static_cast<int>(kRows); ++r)
#pragma GCC unroll 3
    for (int v = 0; v < kPanelVectors; ++v) store(scores[r] + v * kLanes, tile[r][v]);
  softmax_scores(state, row, key, scores, weights, done);
}

}  // namespace heed::detail::HEED_ISA
