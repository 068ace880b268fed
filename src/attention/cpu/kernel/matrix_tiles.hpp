// Both products by matrix tiles: 16 x 16 results at a time, and 16 pairs of bf16 of what is summed over.
// Scores go by way of memory, and become weights there; weights are rounded to bf16 for the product with
// values.
#pragma once

#include "attention/cpu/kernel/softmax.hpp"

namespace heed::detail::HEED_ISA {

template <int kIndex>
struct Constant {
  static constexpr int value = kIndex;
};
/// f(0), f(1), … with constants for numbers.
template <int kCount, int kFrom = 0, class F>
HEED_INLINE void for_each_constant(F f) {
  if constexpr (kFrom < kCount) {
    f(Constant<kFrom>{});
    for_each_constant<kCount, kFrom + 1>(f);
  }
}

/// An operand or result in memory; rows are `stride` floats apart, and an operand's parts `part`.
struct Matrix {
  float* data;
  std::int64_t stride;
  std::int64_t part = 0;
};

/// c [16 kRows][16 kColumns] = a x b, or c + a x b; a [16 kRows][steps][16] and b [steps][16][16 kColumns]
/// are pairs of bf16. Results keep to the first tiles, which leaves at least one for each operand.
template <class Format, int kRows, int kColumns, bool kAdds>
void multiply_matrix_tiles(const Matrix& a, const Matrix& b, std::int64_t steps, const Matrix& c) {
  using Tiles = typename Format::Tiles;
  constexpr int kA = kRows * kColumns;
  constexpr int kB = kA + 1;
  static_assert(kB < 8);
  const auto each_result = [&](auto f) __attribute__((always_inline)) {
    for_each_constant<kRows * kColumns>([&](auto tile) __attribute__((always_inline)) {
      constexpr int kTile = decltype(tile)::value;
      f(tile, c.data + kTile / kColumns * 16 * c.stride + kTile % kColumns * 16);
    });
  };
  each_result([&](auto tile, [[maybe_unused]] const float* at) __attribute__((always_inline)) {
    if constexpr (kAdds)
      Tiles::template load<decltype(tile)::value>(at, c.stride);
    else
      Tiles::template clear<decltype(tile)::value>();
  });
  for (std::int64_t step = 0; step < steps; ++step)
    for_each_constant<Format::kProducts>([&](auto product) __attribute__((always_inline)) {
      const float* of_a = a.data + Format::kPartOfA[decltype(product)::value] * a.part + step * 16;
      const float* of_b = b.data + Format::kPartOfB[decltype(product)::value] * b.part + step * 16 * b.stride;
      for_each_constant<kColumns>([&](auto column) __attribute__((always_inline)) {
        constexpr int kColumn = decltype(column)::value;
        Tiles::template load<kB>(of_b + kColumn * 16, b.stride);
        for_each_constant<kRows>([&](auto turn) __attribute__((always_inline)) {
          // Every other column begins with the rows that the one before ended with, and saves a load.
          constexpr int kTurn = decltype(turn)::value;
          constexpr int kRow = kColumn % 2 == 0 ? kTurn : kRows - 1 - kTurn;
          if constexpr (kTurn > 0 || kColumn == 0)
            Tiles::template load<kA>(of_a + kRow * 16 * a.stride, a.stride);
          Tiles::template multiply_add<kRow * kColumns + kColumn, kA, kB>();
        });
      });
    });
  each_result([&](auto tile, float* at) __attribute__((always_inline)) {
    Tiles::template store<decltype(tile)::value>(at, c.stride);
  });
}

/// Scores of a group's rows against a panel.
using MatrixScores = float[kGroupRows][kPanel];

template <class Format>
void multiply_panel(const TaskState& state, std::int64_t row, std::int64_t rows, const float* panel,
                    MatrixScores& scores) {
  static_assert(!kHasMatrixTiles || (kPanelVectors == 3 && kLanes == 16));
  const std::int64_t lanes = lanes_of<Format>(state.w.depth);
  const Matrix a = {const_cast<float*>(state.queries.data) + row * state.queries.stride, state.queries.stride,
                    lanes};
  const Matrix b = {const_cast<float*>(panel), kPanel, lanes * kPanel};
  const Matrix c = {scores[0], kPanel};
  (rows > kMatrixRows ? multiply_matrix_tiles<Format, 2, 3, false>
                      : multiply_matrix_tiles<Format, 1, 3, false>)(a, b, lanes / 16, c);
}

/// Scores of kTileRows rows become weights where all of the panel's keys are allowed. False where the scores
/// outgrow the shift of a row.
template <ScoreTraits kTraits, class Format>
bool softmax_rows(const ScoreTile& scores, const TileRows& rows, std::int64_t row, float* weights) {
  ScoreTile tile;
#pragma GCC unroll 4
  for (int r = 0; r < kTileRows; ++r)
#pragma GCC unroll 3
    for (int v = 0; v < kPanelVectors; ++v) tile[r][v] = scores[r][v];
  if (!fits_shift<kTraits, F32Format>(tile, rows, row, Mask{}, splat(1.0f))) return false;
#pragma GCC unroll 4
  for (int r = 0; r < kTileRows; ++r) softmax_row<kTraits>(tile[r], rows, row + r, weights + r * kKvBlock);
  return true;
}

template <class Format, bool kTracksMaxima>
auto softmax_rows_for(const TaskState& state) {
  if (state.call.top_k > 0) return softmax_rows<ScoreTraits{kTracksMaxima, true, false, true}, Format>;
  return state.keeps_statistics ? softmax_rows<ScoreTraits{kTracksMaxima, true, false}, Format>
                                : softmax_rows<ScoreTraits{kTracksMaxima, false, false}, Format>;
}

/// Weights of a block of `rows` rows from `row` on for one panel.
template <class Format>
void matrix_score_panel(TaskState& state, std::int64_t row, std::int64_t rows, const PanelKeys& panel) {
  alignas(64) MatrixScores scores;
  const TileRows tile_state = tile_rows(state, panel.done);
  const auto softmax =
      state.tracks_maxima ? softmax_rows_for<Format, true>(state) : softmax_rows_for<Format, false>(state);
  if (panel.keys != kPanel) count_path(state.call.paths, Path::tail);
  for (std::int64_t at = 0; at < rows; at += kGroupRows) {
    RowGroup& group = state.w.group[(row + at) / kGroupRows];
    if (group.begin >= panel.key + kPanel || group.end <= panel.key) continue;
    const std::int64_t group_rows = smaller(kGroupRows, rows - at);
    multiply_panel<Format>(state, row + at, group_rows, panel.data, scores);
    const bool plain = !state.modifies_scores && group.started && group.full_begin <= panel.key &&
                       group.full_end >= panel.key + kPanel && panel.keys == kPanel;
    if (!plain) count_path(state.call.paths, Path::masked);
    for (std::int64_t r = 0; r < group_rows; r += kTileRows) {
      auto& of_rows = reinterpret_cast<float(&)[kTileRows][kPanel]>(scores[r]);
      ScoreTile tile;
#pragma GCC unroll 4
      for (int i = 0; i < kTileRows; ++i)
#pragma GCC unroll 3
        for (int v = 0; v < kPanelVectors; ++v) {
          tile[i][v] = mul(load(of_rows[i] + v * kLanes), splat(state.call.scale));
          store(of_rows[i] + v * kLanes, tile[i][v]);
        }
      float* weights = state.w.weights + (at + r) * kKvBlock + panel.done;
      if (plain && softmax(tile, tile_state, row + at + r, weights)) continue;
      if (plain) count_path(state.call.paths, Path::outgrown);
      softmax_scores(state, row + at + r, panel.key, of_rows, weights, panel.done);
    }
    group.started = true;
  }
}

/// The weights of a group for keys [begin, end) of a KV block as parts of bf16, zeros before and after them
/// up to whole steps. Where they are rounded to one part, their sum as rounded divides the output: a mean by
/// weights that are a little off, not a sum that is.
template <class Format>
void pack_weights(const TaskState& state, std::int64_t row, const float* weights, std::int64_t rows,
                  const KeyRange& keys, const KeyRange& steps) {
  const Workspace& w = state.w;
  constexpr std::int64_t kPart = kGroupRows * kKvBlock;
  for (std::int64_t i = 0; i < rows; ++i) {
    auto* to = reinterpret_cast<std::uint16_t*>(w.rounded_weights) + i * kKvBlock;
    const float* from = weights + i * kKvBlock;
    Vf sum = zero();
    for (std::int64_t k = steps.begin; k < steps.end; k += kLanes) {
      Vf x = k >= keys.begin && k < keys.end ? load(from + k) : zero();
      for (int part = 0; part < Format::kParts; ++part) {
        const Vf rounded = store_bf16(to + part * kPart + k, x);
        x = sub(x, rounded);
        if (Format::kParts == 1) sum = add(sum, rounded);
      }
    }
    if (w.softmax.rounded == nullptr) continue;
    float* rounded = w.softmax.rounded + (row + i) * kLanes;
    store(rounded, add(load(rounded), sum));
  }
}

/// The product of a group's weights with two vectors of columns, or the last one, joins the output. One of
/// bf16 goes on from the sum so far. That of f32 is summed by itself first, so that its many small terms do
/// not meet a large sum one by one, and multiplied by `factor`.
template <class Format>
void add_values(const Matrix& weights, const Matrix& values, std::int64_t steps, std::int64_t rows, bool pair,
                float factor, const Matrix& output) {
  constexpr bool kAdds = Format::kParts == 1;
  alignas(64) float sums[kGroupRows * 32];
  const Matrix to = kAdds ? output : Matrix{sums, 32};
  const bool tall = rows > kMatrixRows;
  const auto multiply =
      pair ? (tall ? multiply_matrix_tiles<Format, 2, 2, kAdds> : multiply_matrix_tiles<Format, 1, 2, kAdds>)
           : (tall ? multiply_matrix_tiles<Format, 2, 1, kAdds> : multiply_matrix_tiles<Format, 1, 1, kAdds>);
  multiply(weights, values, steps, to);
  if (kAdds) return;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < (pair ? 32 : 16); c += kLanes) {
      float* at = output.data + r * output.stride + c;
      store(at, mul_add(load(sums + r * 32 + c), splat(factor), load(at)));
    }
}

/// Adds weights x values of a block for one KV block to the output.
template <class Format>
void matrix_value_block(TaskState& state, std::int64_t row, std::int64_t rows, std::int64_t key,
                        const KvBlock& kv_block) {
  const Workspace& w = state.w;
  constexpr std::int64_t kStepKeys = 32;
  static_assert(kKvBlock % kStepKeys == 0);
  const std::int64_t vectors = w.value_columns / kLanes;
  const std::int64_t pairs = lanes_of<Format>(kv_block.count);
  for (std::int64_t r = 0; r < rows; r += kGroupRows) {
    const KeyRange keys = written_keys(w.group[(row + r) / kGroupRows], key, kv_block.count);
    if (keys.begin >= keys.end) continue;
    const KeyRange steps = {keys.begin / kStepKeys * kStepKeys, round_up(keys.end, kStepKeys)};
    const std::int64_t group_rows = smaller(kGroupRows, rows - r);
    pack_weights<Format>(state, row + r, w.weights + r * kKvBlock, group_rows, keys, steps);
    const Matrix a = {w.rounded_weights + steps.begin / 2, kKvBlock / 2, kGroupRows * kKvBlock / 2};
    for (std::int64_t vector = 0; vector < vectors; vector += 2) {
      const std::int64_t panel = vector / kValueVectors * kValueVectors;
      const std::int64_t here = smaller(kValueVectors, vectors - panel);
      const float* values =
          kv_block.values + (panel * pairs + steps.begin / 2 * here + vector - panel) * kLanes;
      const Matrix b = {const_cast<float*>(values), here * kLanes, pairs * w.value_columns};
      const Matrix c = {w.softmax.output + (row + r) * w.value_columns + vector * kLanes, w.value_columns};
      add_values<Format>(a, b, (steps.end - steps.begin) / kStepKeys, group_rows, vector + 1 < vectors,
                         kv_block.measured.value_factor, c);
    }
  }
}

}  // namespace heed::detail::HEED_ISA
