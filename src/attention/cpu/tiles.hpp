// The two matrix products: tiles of scores, with the exponential taken while they are still in registers, and
// tiles of the output. Both multiply rows whose elements are broadcast one by one with packed panels that are
// read as vectors.
#pragma once

#include "attention/cpu/exp2.hpp"

namespace heed::detail::HEED_ISA {

// Tiling by registers. A score tile is 4 rows x 3 vectors of keys: 12 accumulators, enough to hide the
// latency of two multiply-adds a cycle (4 cycles * 2 = 8), and so few that with 32 registers a second tile
// stays in registers while the next accumulates: its exponentials run beside the multiply-adds (see
// score_column).
inline constexpr int kTileRows = 4;
inline constexpr int kPanelVectors = 3;
inline constexpr int kPanel = kPanelVectors * kLanes;  // keys a panel
// Rows are handled in groups: three score tiles, two (or one) value tiles.
inline constexpr int kGroupRows = 12;
// A value tile is 6 rows x 4 vectors (24 accumulators), or 6 x 2 where there are only 16 registers.
inline constexpr int kValueRows = 6;
inline constexpr int kValueVectors = kRegisters >= 32 ? 4 : 2;
inline constexpr bool kPipelined = kRegisters >= 32;

using ScoreTile = Vf[kTileRows][kPanelVectors];

/// State of query rows, arrays over the rows of a task. Weights in flight are kGain * 2^(score - shift).
struct Rows {
  float* shift;      // an integer: near the largest score so far
  float* threshold;  // a score above it asks for a larger shift
  float* sum;        // [row][kLanes]: partial sums of the weights
  float* entropy;    // [row][kLanes]: partial sums of weight * (score - shift)
  float* max;        // [row][kLanes]: partial maxima of the scores
};

/// acc += rows [kTileRows] (stride ld) x panel [depth][kPanel], over `depth`.
HEED_INLINE void accumulate(ScoreTile& acc, const float* rows, std::int64_t ld, const float* panel,
                            std::int64_t depth) {
#pragma GCC unroll 4
  for (std::int64_t d = 0; d < depth; ++d) {
    Vf key[kPanelVectors];
#pragma GCC unroll 3
    for (int v = 0; v < kPanelVectors; ++v) key[v] = load(panel + d * kPanel + v * kLanes);
#pragma GCC unroll 4
    for (int r = 0; r < kTileRows; ++r) {
      const Vf x = splat(rows[r * ld + d]);
#pragma GCC unroll 3
      for (int v = 0; v < kPanelVectors; ++v) acc[r][v] = mul_add(x, key[v], acc[r][v]);
    }
  }
}

HEED_INLINE void clear(ScoreTile& acc) {
#pragma GCC unroll 4
  for (int r = 0; r < kTileRows; ++r)
#pragma GCC unroll 3
    for (int v = 0; v < kPanelVectors; ++v) acc[r][v] = zero();
}

/// Weights of one row of a tile: exp2 of its scores, added to the row's sums, stored to `weights` [kPanel].
template <bool kTracked, bool kObserved>
HEED_INLINE void weigh_row(const Vf (&score)[kPanelVectors], const Rows& rows, std::int64_t row,
                           float* weights) {
  const Vf shift = splat(kTracked ? rows.shift[row] : 0.0f);
  const Vf c = sub(splat(kRound), shift);
  Vf sum = load(rows.sum + row * kLanes);
  Vf entropy = kObserved ? load(rows.entropy + row * kLanes) : zero();
#pragma GCC unroll 3
  for (int v = 0; v < kPanelVectors; ++v) {
    Vf p;
    if constexpr (kTracked)
      p = exp2_flushed(score[v], c, add(shift, splat(kSmallestExponent)));
    else
      p = exp2_bounded(score[v], c);
    store(weights + v * kLanes, p);
    sum = add(sum, p);
    if constexpr (kObserved) entropy = mul_add(p, kTracked ? sub(score[v], shift) : score[v], entropy);
  }
  store(rows.sum + row * kLanes, sum);
  if constexpr (kObserved) store(rows.entropy + row * kLanes, entropy);
}

/// Lane-wise largest score of a row of a tile.
HEED_INLINE Vf row_maximum(const Vf (&score)[kPanelVectors]) {
  return maximum(maximum(score[0], score[1]), score[2]);
}

/// One step of score_column: accumulates the tile at `q` into `next`; between the quarters of that work it
/// turns the finished tile `done` (rows done_row …) into weights. Out-of-order execution then has both to
/// choose from.
template <bool kTracked, bool kObserved, bool kHasDone>
HEED_INLINE void score_step(ScoreTile& next, const ScoreTile& done, const float* q, std::int64_t ldq,
                            const float* panel, std::int64_t depth, const Rows& rows, std::int64_t done_row,
                            float* weights, std::int64_t ldw) {
  clear(next);
  const std::int64_t quarter = depth / kTileRows;
#pragma GCC unroll 4
  for (int r = 0; r < kTileRows; ++r) {
    if constexpr (kHasDone) weigh_row<kTracked, kObserved>(done[r], rows, done_row + r, weights + r * ldw);
    const std::int64_t begin = r * quarter;
    accumulate(next, q + begin, ldq, panel + begin * kPanel, r == kTileRows - 1 ? depth - begin : quarter);
  }
}

/// True where a row's scores outgrow its shift, and the tile must go through score_general instead.
template <bool kTracked>
HEED_INLINE bool outgrows(const ScoreTile& tile, const Rows& rows, std::int64_t row) {
  if constexpr (!kTracked) return false;
  Mask above = greater(row_maximum(tile[0]), splat(rows.threshold[row]));
#pragma GCC unroll 4
  for (int r = 1; r < kTileRows; ++r)
    above = either(above, greater(row_maximum(tile[r]), splat(rows.threshold[row + r])));
  return any(above);
}

template <bool kObserved>
HEED_INLINE void note_maxima(const ScoreTile& tile, const Rows& rows, std::int64_t row) {
  if constexpr (!kObserved) return;
#pragma GCC unroll 4
  for (int r = 0; r < kTileRows; ++r) {
    float* max = rows.max + (row + r) * kLanes;
    store(max, maximum(load(max), row_maximum(tile[r])));
  }
}

/// Weights of `tiles` score tiles, one below the other, against one packed panel of keys: rows row … of the
/// task, queries q [rows][ldq], weights [rows][ldw]. All keys of the panel are allowed for all rows. Returns
/// how many tiles are done; it stops before one whose scores outgrow the shift of their row.
template <bool kTracked, bool kObserved>
std::int64_t score_column(const float* q, std::int64_t ldq, const float* panel, std::int64_t depth,
                          const Rows& rows, std::int64_t row, std::int64_t tiles, float* weights,
                          std::int64_t ldw) {
  ScoreTile a, b;
  const std::int64_t step = kTileRows * ldq;
  const auto start = [&](ScoreTile & tile, std::int64_t t) __attribute__((always_inline)) {
    clear(tile);
    accumulate(tile, q + t * step, ldq, panel, depth);
  };
  const auto finish = [&](const ScoreTile& tile, std::int64_t t) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int r = 0; r < kTileRows; ++r)
      weigh_row<kTracked, kObserved>(tile[r], rows, row + t * kTileRows + r,
                                     weights + (t * kTileRows + r) * ldw);
  };
  if constexpr (!kPipelined) {
    for (std::int64_t t = 0; t < tiles; ++t) {
      start(a, t);
      if (outgrows<kTracked>(a, rows, row + t * kTileRows)) return t;
      note_maxima<kObserved>(a, rows, row + t * kTileRows);
      finish(a, t);
    }
    return tiles;
  } else {
    const auto advance = [&](ScoreTile & next, const ScoreTile& done, std::int64_t t)
        __attribute__((always_inline)) {
      score_step<kTracked, kObserved, true>(next, done, q + t * step, ldq, panel, depth, rows,
                                            row + (t - 1) * kTileRows, weights + (t - 1) * kTileRows * ldw,
                                            ldw);
    };
    start(a, 0);
    if (outgrows<kTracked>(a, rows, row)) return 0;
    note_maxima<kObserved>(a, rows, row);
    std::int64_t t = 1;
    for (; t + 1 < tiles; t += 2) {
      advance(b, a, t);
      if (outgrows<kTracked>(b, rows, row + t * kTileRows)) return t;
      note_maxima<kObserved>(b, rows, row + t * kTileRows);
      advance(a, b, t + 1);
      if (outgrows<kTracked>(a, rows, row + (t + 1) * kTileRows)) return t + 1;
      note_maxima<kObserved>(a, rows, row + (t + 1) * kTileRows);
    }
    if (t < tiles) {
      advance(b, a, t);
      if (outgrows<kTracked>(b, rows, row + t * kTileRows)) return t;
      note_maxima<kObserved>(b, rows, row + t * kTileRows);
      finish(b, t);
    } else {
      finish(a, t - 1);
    }
    return tiles;
  }
}

/// output [kRowCount][ldo] += weights [kRowCount][ldw] x values [keys][kVectors * kLanes].
template <int kRowCount, int kVectors>
void value_tile(const float* weights, std::int64_t ldw, const float* values, std::int64_t keys, float* output,
                std::int64_t ldo) {
  Vf acc[std::size_t{kRowCount}][std::size_t{kVectors}];
#pragma GCC unroll 12
  for (int r = 0; r < kRowCount; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) acc[r][v] = zero();
#pragma GCC unroll 4
  for (std::int64_t k = 0; k < keys; ++k) {
    Vf value[std::size_t{kVectors}];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) value[v] = load(values + (k * kVectors + v) * kLanes);
#pragma GCC unroll 12
    for (int r = 0; r < kRowCount; ++r) {
      const Vf w = splat(weights[r * ldw + k]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) acc[r][v] = mul_add(w, value[v], acc[r][v]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRowCount; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      float* o = output + r * ldo + v * kLanes;
      store(o, add(load(o), acc[r][v]));
    }
}

}  // namespace heed::detail::HEED_ISA
