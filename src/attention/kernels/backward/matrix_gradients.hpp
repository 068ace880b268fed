// The five products of the gradients by matrix tiles, for a block of rows and a KV block. In the notation of
// backward.hpp, with 32 rows or keys per step:
//
//   s = q k^T    d = g v^T        over the depth: rows and panels, as in the forward pass
//   dq += ds k                    over keys: ds by rows
//   dk^T += q^T ds   dv^T += g^T p   over rows: p and ds by pairs of rows. The keys' gradients stay
//                                 transposed, tile after tile, until they are written
//
// Weights and score gradients of a panel stay in the first-level cache until they are operands. The operand g
// is packed as given, so a row's factor is multiplied into its weights and into d.
#pragma once

#include "attention/kernels/backward/backward_rows.hpp"
#include "attention/kernels/backward/matrix_operands.hpp"

namespace heed::detail::HEED_ISA {

/// Weights and score gradients of two rows of a group, for a panel. The rows are kMatrixRows apart.
struct PairOfRows {
  Vf weights[2][kPanelVectors], score_grads[2][kPanelVectors];
};

/// Index within the group of row `i` of a pair.
HEED_INLINE std::int64_t row_of_pair(std::int64_t pair, int i) { return pair + i * kMatrixRows; }

/// A panel of keys for a group of rows.
struct GroupPanel {
  std::int64_t row;  // the group's first row, counted within the block
  std::int64_t key;  // the panel's first key, counted within the segment
};

/// The products of a group's rows with a panel: scores, not scaled, and d = <g, v>.
struct GroupProducts {
  using Rows = float[kGroupRows][kPanel];
  alignas(64) Rows scores, d;
};

/// Converts the products of two rows to weights and score gradients, if scores are scale times a product.
/// kFlushed: scores may be far below lse. kCut: the rows' positions do not allow all of the panel's keys.
template <bool kFlushed, bool kCut>
HEED_INLINE void recompute_pair(const BackwardTaskState& state, const Block& block, const GroupPanel& panel,
                                std::int64_t pair, const GroupProducts& products, PairOfRows& to) {
  const Vf scale = splat(state.call.forward.log2_scale);
  const std::int64_t row = block.row + panel.row;
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const std::int64_t r = row_of_pair(pair, i);
    const float shift = state.w.shift[row + r];
    const Vf factor = splat(state.w.factor[row + r]), delta = splat(-state.w.delta[row + r]);
    const Vf c = splat(kRound - shift);
    const PanelRange allowed = range_in_panel(state.w.query_row[panel.row + r], panel.key);
#pragma GCC unroll 4
    for (int v = 0; v < kPanelVectors; ++v) {
      const Vf score = mul(load(products.scores[r] + v * kLanes), scale);
      Vf p = kFlushed ? exp2_flushed(score, c, splat(shift + kSmallestExponent)) : exp2_bounded(score, c);
      if constexpr (kCut) p = keep(allowed.lanes(v), p);
      to.weights[i][v] = mul(p, factor);
      to.score_grads[i][v] = mul(p, mul_add(load(products.d[r] + v * kLanes), factor, delta));
    }
  }
}

/// The same for modified scores. Returns false if a score exceeds what f32 holds.
inline bool recompute_pair_generally(const BackwardTaskState& state, const Block& block,
                                     const GroupPanel& panel, std::int64_t pair, const HeadBits& bits,
                                     GroupProducts& products, PairOfRows& to) {
  for (int i = 0; i < 2; ++i) {
    const std::int64_t r = row_of_pair(pair, i);
    float *scores = products.scores[r], *d = products.d[r];
    const Vf scale = splat(state.call.forward.log2_scale),
             factor = splat(state.w.factor[block.row + panel.row + r]);
    alignas(64) float weights[kPanel];
#pragma GCC unroll 4
    for (int v = 0; v < kPanelVectors; ++v) {
      store(scores + v * kLanes, mul(load(scores + v * kLanes), scale));
      store(d + v * kLanes, mul(load(d + v * kLanes), factor));
    }
    if (!general_row(state, block, panel.row + r, panel.key, bits, {scores, d, weights, d})) return false;
#pragma GCC unroll 4
    for (int v = 0; v < kPanelVectors; ++v) {
      to.weights[i][v] = mul(load(weights + v * kLanes), factor);
      to.score_grads[i][v] = load(d + v * kLanes);
    }
  }
  return true;
}

/// Where the operands begin that hold a group's weights and score gradients for a panel.
struct GradientOperands {
  float *weights, *score_grads;  // by columns: pairs of rows
  float* rows;                   // by rows: pairs of keys
};
template <class Format>
GradientOperands operands_of(const BackwardWorkspace& w, std::int64_t row, std::int64_t panel) {
  const std::int64_t by_columns = panel * kPanel * Format::kWeightParts * kRowPairs + row / 2 * kLanes;
  return {w.weights + by_columns, w.score_grads + by_columns,
          row_vector(w.score_grad_rows, Format::kWeightParts * kKeyPairs, row, panel * kPanel / 2)};
}

/// Converts two rows to operands.
template <class Format>
HEED_INLINE void split_pair(const PairOfRows& rows, std::int64_t pair, const GradientOperands& to) {
  constexpr std::int64_t kPart = kRowPairs * kLanes, kColumn = Format::kWeightParts * kPart;
  const auto store_pairs = [&](Vf low, Vf high, float* at) __attribute__((always_inline)) {
    Vf parts[Format::kWeightParts];
    Format::pair(low, high, parts);
    for (int part = 0; part < Format::kWeightParts; ++part) store(at + part * kPart, parts[part]);
  };
#pragma GCC unroll 4
  for (int v = 0; v < kPanelVectors; ++v) {
    const std::int64_t at = v * kColumn + pair * kLanes;
    store_pairs(rows.weights[0][v], rows.weights[1][v], to.weights + at);
    store_pairs(rows.score_grads[0][v], rows.score_grads[1][v], to.score_grads + at);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < kPanelVectors; v += 2) {
      float* at = to.rows + i * kMatrixRows * Format::kWeightParts * kKeyPairs +
                  v / 2 * (kMatrixRows * kLanes) + pair * kLanes;
      Format::split_weights(rows.score_grads[i][v], rows.score_grads[i][v + 1],
                            reinterpret_cast<std::uint16_t*>(at), 2 * kMatrixRows * kKeyPairs);
    }
}

template <class Format, bool kFlushed, bool kCut>
void recompute_plain_panel(const BackwardTaskState& state, const Block& block, const GroupPanel& panel,
                           const GroupProducts& products, const GradientOperands& to) {
  for (std::int64_t pair = 0; pair < kMatrixRows; ++pair) {
    PairOfRows rows;
    recompute_pair<kFlushed, kCut>(state, block, panel, pair, products, rows);
    split_pair<Format>(rows, pair, to);
  }
}

/// Converts a group's products to operands of weights and score gradients.
template <class Format>
bool recompute_panel(const BackwardTaskState& state, const Block& block, const GroupPanel& panel,
                     const HeadBits& bits, GroupProducts& products) {
  const RowGroup& group = state.w.group[panel.row / kGroupRows];
  const GradientOperands to = operands_of<Format>(state.w, panel.row, (panel.key - block.key) / kPanel);
  std::int64_t* paths = state.call.forward.paths;
  if (state.modifies_scores || group.scattered) {
    count_path(paths, Path::backward_matrix_modified);
    for (std::int64_t pair = 0; pair < kMatrixRows; ++pair) {
      PairOfRows rows;
      if (!recompute_pair_generally(state, block, panel, pair, bits, products, rows)) return false;
      split_pair<Format>(rows, pair, to);
    }
  } else if (group.full_begin <= panel.key && group.full_end >= panel.key + kPanel) {
    count_path(paths, block.flushed ? Path::backward_matrix_flushed : Path::backward_matrix_tiles);
    (block.flushed ? recompute_plain_panel<Format, true, false>
                   : recompute_plain_panel<Format, false, false>)(state, block, panel, products, to);
  } else {
    count_path(paths, Path::backward_matrix_cut);
    recompute_plain_panel<Format, true, true>(state, block, panel, products, to);
  }
  return true;
}

/// The panels of a block that some row of the group may see.
inline KeyRange seen_panels(const RowGroup& group, const Block& block) {
  const std::int64_t begin = larger(0, group.begin - block.key);
  const std::int64_t end = smaller(block.keys, group.end - block.key);
  return begin < end ? KeyRange{begin / kPanel, (end + kPanel - 1) / kPanel} : KeyRange{0, 0};
}

/// Computes weights and score gradients of a block, except for panels that a group may not see.
template <class Format>
bool recompute_matrix_weights(const BackwardTaskState& state, const Block& block, const HeadBits& bits) {
  const BackwardWorkspace& w = state.w;
  const std::int64_t lanes = lanes_of<Format>(w.depth), value_lanes = lanes_of<Format>(w.value_depth);
  GroupProducts products;
  for (std::int64_t r = 0; r < block.rows; r += kGroupRows) {
    const KeyRange seen = seen_panels(w.group[r / kGroupRows], block);
    for (std::int64_t p = seen.begin; p < seen.end; ++p) {
      const auto multiply = [&](float* rows, float* panels, std::int64_t depth_lanes,
                                GroupProducts::Rows& to) {
        multiply_group<typename Format::Elements, false>(
            {kGroupRows, by_rows<Format::kParts>(rows + r * Format::kParts * depth_lanes, depth_lanes),
             by_columns<Format::kParts>(panels + p * kPanel * Format::kParts * depth_lanes, depth_lanes),
             result_rows(to[0], kPanel), depth_lanes / kLanes, kPanelVectors});
      };
      multiply(w.query, w.keys, lanes, products.scores);
      multiply(w.grad, w.values, value_lanes, products.d);
      if (!recompute_panel<Format>(state, block, {r, block.key + p * kPanel}, bits, products)) return false;
    }
  }
  return true;
}

/// dq += ds k, group by group. Scores exist from the panel of a group's first key to the panel of its last.
template <class Format>
void add_matrix_query_grads(const BackwardTaskState& state, const Block& block) {
  const BackwardWorkspace& w = state.w;
  const std::int64_t pairs = lanes_of<Format>(block.keys);
  for (std::int64_t r = 0; r < block.rows; r += kGroupRows) {
    const KeyRange seen = seen_panels(w.group[r / kGroupRows], block);
    if (seen.begin == seen.end) continue;
    constexpr std::int64_t kSteps = kPanel / kStepKeys;
    const std::int64_t begin = seen.begin * kSteps, end = smaller(seen.end * kSteps, pairs / kLanes);
    const TileMatrix a =
        by_rows<Format::kWeightParts>(w.score_grad_rows + r * Format::kWeightParts * kKeyPairs, kKeyPairs);
    const TileMatrix b = {w.key_rows, kLanes, pairs * kLanes, kMatrixRows * kLanes, pairs * w.columns};
    add_product<typename Format::WeightsByElements>(
        {kGroupRows, a.from(begin), b.from(begin),
         result_rows(w.query_grad + (block.row + r) * w.columns, w.columns), end - begin, w.columns / kLanes},
        1.0f, w.scratch);
  }
}

/// The key gradients' sums for panel `panel` from column `column` on. The layout is [panel][column / 16][key
/// / 16][16][16], tile after tile.
inline TileMatrix key_sums_at(float* sums, std::int64_t panel, std::int64_t column, std::int64_t columns) {
  constexpr std::int64_t kTile = kMatrixRows * kLanes;
  return {sums + panel * kPanel * columns + column * kPanel, kLanes, kTile, kPanelVectors * kTile};
}

/// dv^T += g^T p and dk^T += q^T ds, panel by panel, over the groups that see the panel.
template <class Format>
void add_matrix_key_grads(const BackwardTaskState& state, const Block& block) {
  const BackwardWorkspace& w = state.w;
  const std::int64_t groups = block.rows / kGroupRows;
  const std::int64_t first = (block.key - state.task.key_begin) / kPanel;  // panel within the task
  for (std::int64_t p = 0; p * kPanel < block.keys; ++p) {
    const std::int64_t key = block.key + p * kPanel;
    for (std::int64_t g = 0; g < groups; ++g) {
      if (!touches(w.group[g], key)) continue;
      std::int64_t end = g + 1;
      while (end < groups && touches(w.group[end], key)) ++end;
      const auto add = [&](float* transposed, float* pairs, std::int64_t columns, float* sums) {
        const TileMatrix b =
            by_columns<Format::kWeightParts>(pairs + p * kPanel * Format::kWeightParts * kRowPairs, kRowPairs)
                .from(g);
        for (std::int64_t c = 0; c < columns; c += kGroupRows) {
          const TileMatrix a =
              by_rows<Format::kParts>(transposed + c * Format::kParts * kRowPairs, kRowPairs).from(g);
          add_product<typename Format::ElementsByWeights>(
              {smaller(kGroupRows, columns - c), a, b, key_sums_at(sums, first + p, c, columns), end - g,
               kPanelVectors},
              1.0f, w.scratch);
        }
      };
      if (state.call.grad_value.data) add(w.grad_columns, w.weights, w.value_columns, w.value_grad);
      if (state.call.grad_key.data) add(w.query_columns, w.score_grads, w.columns, w.key_grad);
      g = end;
    }
  }
}

/// Converts such sums to rows of `columns` floats, for the kLanes keys or values from key `key` on.
inline void transpose_key_grads(float* sums, std::int64_t key, std::int64_t columns, float* to) {
  for (std::int64_t c = 0; c < columns; c += kLanes) {
    const TileMatrix tiles = key_sums_at(sums, key / kPanel, c, columns);
    const float* from = tiles.data + key % kPanel / kLanes * tiles.next;
    Vf block[kLanes];
    for (int i = 0; i < kLanes; ++i) block[i] = load(from + i * kLanes);
    transpose(block);
    for (int i = 0; i < kLanes; ++i) store(to + i * columns + c, block[i]);
  }
}

}  // namespace heed::detail::HEED_ISA
