// The five products of the gradients by lanes, for a block of rows and a KV block.
#pragma once

#include "attention/kernels/backward/backward_pack.hpp"
#include "attention/kernels/backward/backward_rows.hpp"

namespace heed::detail::HEED_ISA {

inline bool general_tile(const BackwardTaskState& state, const Block& block, const GradientTile& t,
                         std::int64_t row, std::int64_t key, const HeadBits& bits) {
  alignas(64) float scores[kTileRows][kPanel];
  alignas(64) float d[kTileRows][kPanel];
  ScoreTile tile;
  const auto spill = [&](float(&to)[kTileRows][kPanel]) {
#pragma GCC unroll 4
    for (int r = 0; r < kTileRows; ++r)
#pragma GCC unroll 3
      for (int v = 0; v < kPanelVectors; ++v) store(to[r] + v * kLanes, tile[r][v]);
  };
  clear(tile);
  accumulate<F32Format>(tile, t.query + row * t.query_ld, t.query_ld, t.keys, t.depth);
  spill(scores);
  clear(tile);
  accumulate<F32Format>(tile, t.grad + row * t.grad_ld, t.grad_ld, t.values, t.value_depth);
  spill(d);
  for (int r = 0; r < kTileRows; ++r)
    if (!general_row(state, block, row + r, key, bits,
                     {scores[r], d[r], t.weights + (row + r) * t.ld, t.score_grads + (row + r) * t.ld}))
      return false;
  return true;
}

/// Computes weights and score gradients of a block, except for tiles that no row may see.
inline bool recompute_weights(const BackwardTaskState& state, const Block& block, const HeadBits& bits) {
  const BackwardWorkspace& w = state.w;
  const std::int64_t groups = (block.rows + kGroupRows - 1) / kGroupRows;
  const GradientRows rows = {w.shift + block.row, w.delta + block.row};
  for (std::int64_t p = 0; p * kPanel < block.keys; ++p) {
    const std::int64_t key = block.key + p * kPanel;
    const std::int64_t key_end = smaller(key + kPanel, block.key + block.keys);
    const GradientTile tile = {w.query,
                               w.grad,
                               w.columns,
                               w.value_columns,
                               w.keys + p * kPanel * w.depth,
                               w.values + p * kPanel * w.value_depth,
                               w.depth,
                               w.value_depth,
                               w.weights + p * kPanel,
                               w.score_grads + p * kPanel,
                               kGradientKeys};
    const auto is_plain = [&](const RowGroup& g) {
      return !state.modifies_scores && g.full_begin <= key && g.full_end >= key_end;
    };
    for (std::int64_t g = 0; g < groups;) {
      std::int64_t end = g + 1;
      const auto last_row = [&] { return smaller(end * kGroupRows, block.rows); };
      if (touches(w.group[g], key)) {
        if (is_plain(w.group[g])) {
          while (end < groups && is_plain(w.group[end])) ++end;
          count_path(state.call.forward.paths, block.flushed ? Path::backward_flushed : Path::backward_tiles);
          const auto tiles = block.flushed ? gradient_tiles<true> : gradient_tiles<false>;
          tiles(tile, rows, g * kGroupRows, last_row());
        } else {
          count_path(state.call.forward.paths, Path::backward_masked);
          for (std::int64_t row = g * kGroupRows; row < last_row(); row += kTileRows)
            if (!general_tile(state, block, tile, row, key, bits)) return false;
        }
      }
      g = end;
    }
  }
  return true;
}

/// dq += ds k, group by group. Scores exist from the panel of a group's first key to its last key.
inline void add_query_grads(const BackwardTaskState& state, const Block& block) {
  const BackwardWorkspace& w = state.w;
  for (std::int64_t r = 0; r < block.rows; r += kGroupRows) {
    const RowGroup& group = w.group[r / kGroupRows];
    const std::int64_t begin = larger(0, group.begin - block.key) / kPanel * kPanel;
    const std::int64_t end = smaller(block.keys, group.end - block.key);
    if (begin >= end) continue;
    add_product<false>({w.score_grads + r * kGradientKeys + begin, kGradientKeys,
                        w.key_rows + begin * w.columns, w.columns, w.query_grad + (block.row + r) * w.columns,
                        w.columns, smaller(kGroupRows, block.rows - r), w.columns, end - begin});
  }
}

/// dv += p^T g and dk += ds^T q, panel by panel, over the groups that see the panel.
inline void add_key_grads(const BackwardTaskState& state, const Block& block) {
  const BackwardWorkspace& w = state.w;
  const std::int64_t groups = (block.rows + kGroupRows - 1) / kGroupRows;
  for (std::int64_t p = 0; p * kPanel < block.keys; ++p) {
    const std::int64_t key = block.key + p * kPanel;
    const std::int64_t at = key - state.task.key_begin;
    for (std::int64_t g = 0; g < groups; ++g) {
      if (!touches(w.group[g], key)) continue;
      std::int64_t end = g + 1;
      while (end < groups && touches(w.group[end], key)) ++end;
      const std::int64_t row = g * kGroupRows;
      const std::int64_t rows = smaller(end * kGroupRows, block.rows) - row;
      const std::int64_t from = row * kGradientKeys + p * kPanel;
      if (state.call.grad_value.data)
        add_product<true>({w.weights + from, kGradientKeys, w.grad + row * w.value_columns, w.value_columns,
                           w.value_grad + at * w.value_columns, w.value_columns, kPanel, w.value_columns,
                           rows});
      if (state.call.grad_key.data)
        add_product<true>({w.score_grads + from, kGradientKeys, w.query + row * w.columns, w.columns,
                           w.key_grad + at * w.columns, w.columns, kPanel, w.columns, rows});
      g = end;
    }
  }
}

}  // namespace heed::detail::HEED_ISA
