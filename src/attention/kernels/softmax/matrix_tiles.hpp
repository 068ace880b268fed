// Both products by matrix tiles. A tile product has 16 x 16 results and sums over 16 pairs of bf16. Scores go
// by way of memory and become weights there. Weights become an operand of the product with values, rounded to
// bf16 or split into bf16 parts.
#pragma once

#include "attention/kernels/shared/tile_matrix.hpp"
#include "attention/kernels/softmax/softmax.hpp"

namespace heed::detail::HEED_ISA {

template <int kIndex>
struct Constant {
  static constexpr int value = kIndex;
};
/// Calls f(0), f(1), … with compile-time constants.
template <int kCount, int kFrom = 0, class F>
HEED_INLINE void for_each_constant(F f) {
  if constexpr (kFrom < kCount) {
    f(Constant<kFrom>{});
    for_each_constant<kCount, kFrom + 1>(f);
  }
}

/// c [16 kRows][16 kColumns] = a x b, or c + a x b, over `steps` steps of 16 pairs of bf16, in tile
/// registers. Products lists the products of parts that form a product of elements (formats/).
template <class Products, class Tiles, int kRows, int kColumns, bool kAdds>
HEED_INLINE void multiply_in_registers(const TileMatrix& a, const TileMatrix& b, std::int64_t steps,
                                       const TileMatrix& c) {
  constexpr int kA = kRows * kColumns;
  constexpr int kB = kA + kRows;
  static_assert(kB + kColumns <= 8);
  const auto each_result = [&](auto f) __attribute__((always_inline)) {
    for_each_constant<kRows * kColumns>([&](auto tile) __attribute__((always_inline)) {
      constexpr int kTile = decltype(tile)::value;
      f(tile, c.data + kTile / kColumns * c.step + kTile % kColumns * c.next);
    });
  };
  each_result([&](auto tile, [[maybe_unused]] const float* at) __attribute__((always_inline)) {
    if constexpr (kAdds)
      Tiles::template load<decltype(tile)::value>(at, c.stride);
    else
      Tiles::template clear<decltype(tile)::value>();
  });
  for (std::int64_t step = 0; step < steps; ++step)
    for_each_constant<Products::kCount>([&](auto product) __attribute__((always_inline)) {
      constexpr int kProduct = decltype(product)::value;
      // A part that the previous product used is loaded already.
      constexpr bool kLoadsA =
          kProduct == 0 || Products::kPartOfA[kProduct] != Products::kPartOfA[kProduct - 1];
      constexpr bool kLoadsB =
          kProduct == 0 || Products::kPartOfB[kProduct] != Products::kPartOfB[kProduct - 1];
      const float* of_a = a.data + Products::kPartOfA[kProduct] * a.part + step * a.step;
      const float* of_b = b.data + Products::kPartOfB[kProduct] * b.part + step * b.step;
      for_each_constant<kRows>([&](auto row) __attribute__((always_inline)) {
        constexpr int kRow = decltype(row)::value;
        if constexpr (kLoadsA) Tiles::template load<kA + kRow>(of_a + kRow * a.next, a.stride);
        for_each_constant<kColumns>([&](auto column) __attribute__((always_inline)) {
          constexpr int kColumn = decltype(column)::value;
          if constexpr (kLoadsB && kRow == 0)
            Tiles::template load<kB + kColumn>(of_b + kColumn * b.next, b.stride);
          Tiles::template multiply_add<kRow * kColumns + kColumn, kA + kRow, kB + kColumn>();
        });
      });
    });
  each_result([&](auto tile, float* at) __attribute__((always_inline)) {
    Tiles::template store<decltype(tile)::value>(at, c.stride);
  });
}

/// The same with the unit's tiles, which are tile registers or vectors.
template <class Products, int kRows, int kColumns, bool kAdds, class Tiles = MatrixTiles>
HEED_INLINE void multiply_tiles_once(const TileMatrix& a, const TileMatrix& b, std::int64_t steps,
                                     const TileMatrix& c) {
  if constexpr (Tiles::kHasRegisters) {
    multiply_in_registers<Products, Tiles, kRows, kColumns, kAdds>(a, b, steps, c);
  } else {
    static_assert(Products::kCount == 1);
    Tiles::template multiply<kRows, kColumns, kAdds>(a, b, steps, c);
  }
}

/// A result whose rows are contiguous in memory.
HEED_INLINE TileMatrix result_rows(float* data, std::int64_t stride) {
  return {data, stride, kLanes, kMatrixRows * stride};
}

/// The same for `columns` tiles of columns, two at a time.
template <class Products, int kRows, bool kAdds>
void multiply_matrix_tiles(TileMatrix a, TileMatrix b, std::int64_t steps, TileMatrix c,
                           std::int64_t columns) {
  std::int64_t column = 0;
  for (; column + 2 <= columns; column += 2, b.data += 2 * b.next, c.data += 2 * c.next)
    multiply_tiles_once<Products, kRows, 2, kAdds>(a, b, steps, c);
  if (column < columns) multiply_tiles_once<Products, kRows, 1, kAdds>(a, b, steps, c);
}

template <class Products, bool kAdds>
void multiply_group(std::int64_t rows, const TileMatrix& a, const TileMatrix& b, std::int64_t steps,
                    const TileMatrix& c, std::int64_t columns) {
  (rows > kMatrixRows ? multiply_matrix_tiles<Products, 2, kAdds>
                      : multiply_matrix_tiles<Products, 1, kAdds>)(a, b, steps, c, columns);
}

/// Steps of 32 elements, for an operand in three parts, that stay in the first-level cache from one column to
/// the next.
inline constexpr std::int64_t kStepsInCache = 3;

/// c += a x b * factor over `steps` steps. A bf16 product continues from the sum so far; its factor is 1. An
/// f32 product is summed separately first, in `scratch`, which has the layout of c. So its many small terms
/// are not added to a large sum one by one.
template <class Products>
void add_product(std::int64_t rows, const TileMatrix& a, const TileMatrix& b, std::int64_t steps,
                 const TileMatrix& c, std::int64_t columns, float factor, float* scratch) {
  if constexpr (Products::kCount == 1) {
    multiply_group<Products, true>(rows, a, b, steps, c, columns);
  } else {
    const TileMatrix product = {scratch, c.stride, c.next, c.step};
    multiply_group<Products, false>(rows, a, b, smaller(steps, kStepsInCache), product, columns);
    for (std::int64_t done = kStepsInCache; done < steps; done += kStepsInCache)
      multiply_group<Products, true>(rows, a.from(done), b.from(done), smaller(steps - done, kStepsInCache),
                                     product, columns);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t v = 0; v < columns; ++v) {
        const std::int64_t at = r / kMatrixRows * c.step + r % kMatrixRows * c.stride + v * c.next;
        store(c.data + at, mul_add(load(scratch + at), splat(factor), load(c.data + at)));
      }
  }
}

/// Scores of a group's rows against a panel, before scaling.
using MatrixScores = float[kGroupRows][kPanel];

template <class Format>
void multiply_panel(const TaskState& state, std::int64_t row, std::int64_t rows, const float* panel,
                    MatrixScores& scores) {
  static_assert(!kHasMatrixTiles || (kPanelVectors % 2 == 0 && kLanes == 16));
  const std::int64_t lanes = lanes_of<Format>(state.w.depth);
  const TileMatrix a = {query_vector(state.w, row, 0), kLanes, kMatrixRows * state.w.query_lanes,
                        kMatrixRows * kLanes, kMatrixRows * lanes};
  const TileMatrix b = {const_cast<float*>(panel), 16, Format::kParts * lanes * 16, 16 * 16, lanes * 16};
  multiply_group<typename Format::Elements, false>(rows, a, b, lanes / 16, result_rows(scores[0], kPanel),
                                                   kPanelVectors);
}

/// A group's weights as an operand: [part][step of 32 keys][row][kLanes].
inline constexpr std::int64_t kStepKeys = 32;
inline constexpr std::int64_t kWeightStep = kGroupRows * kLanes;
inline constexpr std::int64_t kWeightPart = kGroupRows * kKvBlock / 2;

/// Writes a row's weights for kStepKeys keys, from `key` of the KV block on, to the operand. If weights are
/// rounded to one part, the output is divided by the sum of the rounded weights. The output is then a mean by
/// slightly wrong weights, not a wrong sum.
template <class Format>
HEED_INLINE Vf split_weights(const Workspace& w, std::int64_t row, std::int64_t key, Vf a, Vf b) {
  float* to = w.weight_parts + key / kStepKeys * kWeightStep + row % kGroupRows * kLanes;
  return Format::split_weights(a, b, reinterpret_cast<std::uint16_t*>(to), 2 * kWeightPart);
}

HEED_INLINE void add_rounded(const Workspace& w, std::int64_t row, Vf sum) {
  if (w.softmax.rounded == nullptr) return;
  float* rounded = w.softmax.rounded + row * kLanes;
  store(rounded, add(load(rounded), sum));
}

/// Converts a row's weights [kPanel] of a panel to an operand. The panel is `done` keys after the KV block's
/// first key.
template <class Format>
HEED_INLINE void split_panel(const Workspace& w, std::int64_t row, std::int64_t done,
                             const Vf (&weights)[kPanelVectors]) {
  Vf sum = zero();
#pragma GCC unroll 2
  for (int v = 0; v + 1 < kPanelVectors; v += 2)
    sum = add(sum, split_weights<Format>(w, row, done + v * kLanes, weights[v], weights[v + 1]));
  add_rounded(w, row, sum);
}

template <class Format>
void scale_split_weights(const Workspace& w, std::int64_t row, std::int64_t done, float factor) {
  for (int part = 0; part < Format::kWeightParts; ++part)
    for (std::int64_t step = 0; step < done / kStepKeys; ++step) {
      auto* at = reinterpret_cast<std::uint16_t*>(w.weight_parts + part * kWeightPart + step * kWeightStep +
                                                  row % kGroupRows * kLanes);
      const Vf first = mul(load_bf16(at), splat(factor));
      store_bf16(at, first, mul(load_bf16(at + kLanes), splat(factor)));
    }
}

/// Address of a row's f32 weights of a panel, `done` keys after the KV block's first key.
HEED_INLINE float* panel_weights(const Workspace& w, std::int64_t row, std::int64_t done) {
  return w.weights + row % kGroupRows * kKvBlock + done;
}

/// Converts scores of a group's rows to weights, if all of the panel's keys are allowed. It processes rows
/// [from, rows), counted from `row` on, and stops at a row whose scores outgrow its shift. Returns that row,
/// or `rows`.
template <ScoreTraits kTraits, class Format>
std::int64_t softmax_rows(const TaskState& state, const MatrixScores& scores, std::int64_t row,
                          std::int64_t from, std::int64_t rows, std::int64_t done) {
  const TileRows all = tile_rows(state, done);
  const Vf scale = splat(state.call.log2_scale);
  const bool splits = state.splits_weights;
  for (std::int64_t r = from; r < rows; ++r) {
    Tile<1, kPanelVectors> score;
    Vf weights[kPanelVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kPanelVectors; ++v) score[0][v] = load(scores[r] + v * kLanes);
    if (!fits_shift<kTraits, Format>(score, all, row + r, Mask{}, scale)) return r;
    exp_row<kTraits>(
        score[0], all, row + r, [&](std::size_t v, Vf p) __attribute__((always_inline)) { weights[v] = p; });
    if (splits) {
      split_panel<Format>(state.w, row + r, done, weights);
    } else {
      float* to = panel_weights(state.w, row + r, done);
#pragma GCC unroll 4
      for (int v = 0; v < kPanelVectors; ++v) store(to + v * kLanes, weights[v]);
    }
  }
  return rows;
}

template <class Format, bool kTracksMaxima>
auto softmax_rows_for(const TaskState& state) {
  if (state.call.top_k > 0) return softmax_rows<ScoreTraits{kTracksMaxima, true, false, true}, Format>;
  return state.keeps_statistics ? softmax_rows<ScoreTraits{kTracksMaxima, true, false}, Format>
                                : softmax_rows<ScoreTraits{kTracksMaxima, false, false}, Format>;
}

/// The same for one row by way of memory: applies masks and score modifiers, and moves the row's shift if
/// necessary.
template <class Format>
void softmax_general(TaskState& state, float* scores, std::int64_t row, const PanelKeys& panel,
                     bool checked) {
#pragma GCC unroll 4
  for (int v = 0; v < kPanelVectors; ++v)
    store(scores + v * kLanes, mul(load(scores + v * kLanes), splat(state.call.log2_scale)));
  float* weights = panel_weights(state.w, row, panel.done);
  softmax_scores(state, row, panel.key, reinterpret_cast<float(&)[1][kPanel]>(*scores), weights, panel.done,
                 checked);
  if (!state.splits_weights) return;
  Vf of_row[kPanelVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kPanelVectors; ++v) of_row[v] = load(weights + v * kLanes);
  split_panel<Format>(state.w, row, panel.done, of_row);
}

/// Computes the weights of a group of `rows` rows from `row` on for one panel, from unscaled scores.
/// `in_range`: the scores are finite, and weights can be computed from them.
template <class Format>
void softmax_panel(TaskState& state, std::int64_t row, std::int64_t rows, const PanelKeys& panel,
                   MatrixScores& scores, bool in_range) {
  RowGroup& group = state.w.group[row / kGroupRows];
  const bool plain = in_range && !state.modifies_scores && group.started && group.full_begin <= panel.key &&
                     group.full_end >= panel.key + kPanel && panel.keys == kPanel;
  if (panel.keys != kPanel) count_path(state.call.paths, Path::tail);
  if (!plain) count_path(state.call.paths, Path::masked);
  const auto softmax =
      state.tracks_maxima ? softmax_rows_for<Format, true>(state) : softmax_rows_for<Format, false>(state);
  for (std::int64_t r = 0; r < rows; ++r) {
    if (plain) {
      r = softmax(state, scores, row, r, rows, panel.done);
      if (r == rows) break;
      count_path(state.call.paths, Path::outgrown);
    }
    softmax_general<Format>(state, scores[r], row + r, panel, !in_range);
  }
  group.started = true;
}

/// Converts a group's weights for keys [begin, end) of a KV block to an operand. Zeros fill the first and the
/// last step.
template <class Format>
void split_group(const TaskState& state, std::int64_t row, std::int64_t rows, const KeyRange& keys,
                 const KeyRange& steps) {
  const Workspace& w = state.w;
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* from = w.weights + r * kKvBlock;
    const auto weights = [&](std::int64_t k) {
      return k >= keys.begin && k < keys.end ? load(from + k) : zero();
    };
    Vf sum = zero();
    for (std::int64_t k = steps.begin; k < steps.end; k += kStepKeys)
      sum = add(sum, split_weights<Format>(w, row + r, k, weights(k), weights(k + kLanes)));
    add_rounded(w, row + r, sum);
  }
}

/// Adds weights x values of a group and one KV block to the output.
template <class Format>
void matrix_value_block(TaskState& state, std::int64_t row, std::int64_t rows, std::int64_t key,
                        const KvBlock& kv_block) {
  const Workspace& w = state.w;
  static_assert(kKvBlock % kStepKeys == 0);
  const KeyRange keys = written_keys(w.group[row / kGroupRows], key, kv_block.count);
  if (keys.begin >= keys.end) return;
  const KeyRange steps = {keys.begin / kStepKeys * kStepKeys, round_up(keys.end, kStepKeys)};
  if (!state.splits_weights) split_group<Format>(state, row, rows, keys, steps);
  const std::int64_t vectors = w.value_columns / kLanes;
  const std::int64_t pairs = lanes_of<Format>(kv_block.count);
  const std::int64_t first = steps.begin / kStepKeys;
  const TileMatrix a = {w.weight_parts + first * kWeightStep, kLanes, kMatrixRows * kLanes, kWeightStep,
                        kWeightPart};
  const TileMatrix b = {const_cast<float*>(kv_block.values) + first * 16 * kLanes, 16, pairs * 16, 16 * 16,
                        pairs * w.value_columns};
  const TileMatrix c = result_rows(w.softmax.output + row * w.value_columns, w.value_columns);
  const std::int64_t count = (steps.end - steps.begin) / kStepKeys;
  add_product<typename Format::WeightsByElements>(rows, a, b, count, c, vectors,
                                                  kv_block.measured.value_factor, w.product);
}

}  // namespace heed::detail::HEED_ISA
