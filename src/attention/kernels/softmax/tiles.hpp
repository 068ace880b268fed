// The two matrix products: score tiles, whose exponentials are taken while they are still in registers, and
// output tiles. Both multiply rows, whose elements are broadcast one by one, with packed panels, which are
// read as vectors.
#pragma once

#include "attention/kernels/formats/tile_format.hpp"
#include "attention/kernels/softmax/score_modifiers.hpp"
#include "attention/kernels/softmax/softmax_state.hpp"

namespace heed::detail::HEED_ISA {

template <std::size_t kRows, std::size_t kVectors>
using Tile = Vf[kRows][kVectors];
using ScoreTile = Tile<kTileRows, kPanelVectors>;

/// One bit per lane of a vector of weights, set if the weight may enter its row's top-k list.
template <int kBits>
struct CandidateBitsOf {
  using Type = std::uint8_t;
};
template <>
struct CandidateBitsOf<16> {
  using Type = std::uint16_t;
};
using CandidateBits = CandidateBitsOf<kLanes>::Type;

/// The part of the states of a task's rows that tiles use, and the place for candidates of the current panel.
struct TileRows {
  float *shift, *threshold, *sum, *moment, *max, *entry_threshold;
  CandidateBits* candidate_bits;  ///< [rows][candidate_ld], one per vector of keys, from the panel on
  std::int64_t candidate_ld;
};

/// Prefetch of the next KV block's memory. Work on a query row prefetches `share` bytes of it. So the
/// second-level cache has it in time, and no row waits for a burst of requests.
struct BlockPrefetch {
  const char* data = nullptr;
  std::int64_t share = 0;

  HEED_INLINE void fetch(std::int64_t row, std::int64_t rows) const {
    for (std::int64_t byte = row * share; byte < (row + rows) * share; byte += 64)
      __builtin_prefetch(data + byte, 0, 2);
  }
  BlockPrefetch from(std::int64_t row) const { return {data + row * share, share}; }
};

/// acc += rows [kRows] (stride ld) x the first kVectors vectors of panel [depth][kPanel], over `depth`.
template <class Format, std::size_t kRows, std::size_t kVectors>
HEED_INLINE void accumulate(Tile<kRows, kVectors>& acc, const float* rows, std::int64_t ld,
                            const float* panel, std::int64_t depth) {
#pragma GCC unroll 4
  for (std::int64_t d = 0; d < depth; ++d) {
    Vf key[kVectors];
#pragma GCC unroll 3
    for (std::size_t v = 0; v < kVectors; ++v) key[v] = load(panel + d * kPanel + v * kLanes);
#pragma GCC unroll 12
    for (int r = 0; r < static_cast<int>(kRows); ++r) {
      const Vf x = splat(rows[r * ld + d]);
#pragma GCC unroll 3
      for (std::size_t v = 0; v < kVectors; ++v) acc[r][v] = Format::multiply_add(x, key[v], acc[r][v]);
    }
  }
}

template <std::size_t kRows, std::size_t kVectors>
HEED_INLINE void clear(Tile<kRows, kVectors>& acc) {
#pragma GCC unroll 12
  for (int r = 0; r < static_cast<int>(kRows); ++r)
#pragma GCC unroll 3
    for (std::size_t v = 0; v < kVectors; ++v) acc[r][v] = zero();
}

/// A decay that tiles add to their scores: c in f32, or in f64.
enum class Decay { none, narrow, wide };

/// The extra work of a score microkernel. A template argument, so that disabled work costs nothing.
struct ScoreTraits {
  bool tracks_maxima;         ///< shifts are not 0, and a tile may outgrow them
  bool keeps_statistics;      ///< moments are kept, and maxima if they are wanted
  bool tail;                  ///< only the first lanes of the last vector are keys (or see SoftmaxRows)
  bool candidates = false;    ///< rows have top-k lists, and candidates are marked
  bool sums = true;           ///< weights are added to the row's sum
  Decay decay = Decay::none;  ///< tiles add it to their scores
};

/// Marks the weights of a tile row that exceed the entry threshold of the row's list.
template <std::size_t kVectors>
HEED_INLINE void note_candidates(const Vf (&weight)[kVectors], const TileRows& rows, std::int64_t row) {
  CandidateBits* candidate_bits = rows.candidate_bits + row * rows.candidate_ld;
  const Vf entry = splat(rows.entry_threshold[row]);
#pragma GCC unroll 3
  for (std::size_t v = 0; v < kVectors; ++v)
    candidate_bits[v] = static_cast<CandidateBits>(bits_of(greater(weight[v], entry)));
}

/// Computes the weights of one tile row: exp2 of its scores, added to the row's sums. Calls take(v, weights)
/// for each vector. `exp2` is Exp2 or does the same.
template <ScoreTraits kTraits, std::size_t kVectors, class TakeExp2, class Take>
HEED_INLINE void exp_row(const Vf (&score)[kVectors], const TileRows& rows, std::int64_t row,
                         const TakeExp2& exp2, Take take) {
  const Vf shift = splat(kTraits.tracks_maxima ? rows.shift[row] : 0.0f);
  Vf sum = kTraits.sums ? load(rows.sum + row * kLanes) : zero();
  Vf moment = kTraits.keeps_statistics ? load(rows.moment + row * kLanes) : zero();
  Vf p[kVectors];
#pragma GCC unroll 4
  for (std::size_t v = 0; v < kVectors; ++v) {
    if constexpr (kTraits.tracks_maxima || kTraits.tail)
      p[v] = exp2(score[v], shift, add(shift, splat(kSmallestExponent)));
    else
      p[v] = exp2(score[v]);
    take(v, p[v]);
    if constexpr (kTraits.sums) sum = add(sum, p[v]);
    if constexpr (kTraits.keeps_statistics)
      moment = mul_add(p[v], kTraits.tracks_maxima ? sub(score[v], shift) : score[v], moment);
  }
  if constexpr (kTraits.sums) store(rows.sum + row * kLanes, sum);
  if constexpr (kTraits.keeps_statistics) store(rows.moment + row * kLanes, moment);
  if constexpr (kTraits.candidates) note_candidates(p, rows, row);
}

/// The same, stored to `weights`.
template <ScoreTraits kTraits, std::size_t kVectors>
HEED_INLINE void softmax_row(const Vf (&score)[kVectors], const TileRows& rows, std::int64_t row,
                             float* weights) {
  exp_row<kTraits>(
      score, rows, row,
      Exp2{}, [&](std::size_t v, Vf p) __attribute__((always_inline)) { store(weights + v * kLanes, p); });
}

/// Lane-wise maximum of a tile row's scores.
template <std::size_t kVectors>
HEED_INLINE Vf row_maximum(const Vf (&score)[kVectors]) {
  Vf max = score[0];
#pragma GCC unroll 3
  for (std::size_t v = 1; v < kVectors; ++v) max = maximum(max, score[v]);
  return max;
}

/// The decay of score tiles: c_i of the task's rows, and c_j of a panel's keys.
struct DecayTerms {
  RowDecay of_rows;
  const PanelDecay* of_keys;
};

/// The operands of a column of score tiles, one below the other, and the place of their weights.
struct ScoreColumn {
  const float* q;  ///< [rows][ldq]
  std::int64_t ldq;
  const float* panel;  ///< [depth][kPanel]
  std::int64_t depth;
  std::int64_t last_keys;  ///< keys in the last vector of the panel
  float scale;
  float* weights;  ///< [rows][ldw]
  std::int64_t ldw;
  BlockPrefetch prefetch;
  DecayTerms decay;
};

/// One step of score_microkernel. It accumulates tile `t` of the column into `next`. Between the parts of
/// that work, it turns the finished tile before it, `done`, into weights, row by row. Out-of-order execution
/// can then choose from both. `row` is the column's first row.
template <ScoreTraits kTraits, class Format, std::size_t kRows, std::size_t kVectors>
HEED_INLINE void score_step(Tile<kRows, kVectors>& next, const Tile<kRows, kVectors>& done,
                            const ScoreColumn& column, const TileRows& rows, std::int64_t row,
                            std::int64_t t) {
  constexpr auto kHeight = static_cast<std::int64_t>(kRows);
  const float* q = column.q + t * kHeight * column.ldq;
  float* weights = column.weights + (t - 1) * kHeight * column.ldw;
  const std::int64_t done_row = row + (t - 1) * kHeight;
  clear(next);
  const std::int64_t part = column.depth / kHeight / 4 * 4;  // whole unrolled iterations
#pragma GCC unroll 12
  for (int r = 0; r < static_cast<int>(kRows); ++r) {
    softmax_row<kTraits>(done[r], rows, done_row + r, weights + r * column.ldw);
    const std::int64_t begin = r * part;
    accumulate<Format>(next, q + begin, column.ldq, column.panel + begin * kPanel,
                       r == static_cast<int>(kRows) - 1 ? column.depth - begin : part);
  }
}

template <std::size_t kRows, std::size_t kVectors>
HEED_INLINE void scale_tile(Tile<kRows, kVectors>& tile, Vf scale) {
#pragma GCC unroll 12
  for (int r = 0; r < static_cast<int>(kRows); ++r)
#pragma GCC unroll 3
    for (std::size_t v = 0; v < kVectors; ++v) tile[r][v] = mul(tile[r][v], scale);
}

/// Adds c_i - c_j to a tile's scores, with the same bits as modify_scores().
template <class Number, std::size_t kRows, std::size_t kVectors>
HEED_INLINE void add_decay(Tile<kRows, kVectors>& tile, const Number* of_rows, const Number* of_keys) {
#pragma GCC unroll 12
  for (int r = 0; r < static_cast<int>(kRows); ++r)
#pragma GCC unroll 3
    for (std::size_t v = 0; v < kVectors; ++v)
      tile[r][v] = maximum(decayed(tile[r][v], of_rows[r], of_keys + v * kLanes), splat(-kMaxScore));
}

/// Completes a tile's scores. Returns false if they outgrow a row's shift; the tile must then go through
/// score_general.
template <ScoreTraits kTraits, class Format, std::size_t kRows, std::size_t kVectors>
HEED_INLINE bool fits_shift(Tile<kRows, kVectors>& tile, const TileRows& rows, std::int64_t row, Mask valid,
                            Vf scale, const DecayTerms& decay) {
  if constexpr (Format::kScalesScores) scale_tile(tile, scale);
  if constexpr (kTraits.decay == Decay::narrow)
    add_decay(tile, decay.of_rows.narrow + row, decay.of_keys->narrow);
  if constexpr (kTraits.decay == Decay::wide) add_decay(tile, decay.of_rows.wide + row, decay.of_keys->wide);
  if constexpr (kTraits.tail) {
#pragma GCC unroll 12
    for (int r = 0; r < static_cast<int>(kRows); ++r)
      tile[r][kVectors - 1] = select(valid, tile[r][kVectors - 1], splat(kForbidden));
  }
  if constexpr (kTraits.tracks_maxima) {
    Mask above = greater(row_maximum(tile[0]), splat(rows.threshold[row]));
#pragma GCC unroll 12
    for (int r = 1; r < static_cast<int>(kRows); ++r)
      above = either(above, greater(row_maximum(tile[r]), splat(rows.threshold[row + r])));
    if (any(above)) return false;
  }
  if (kTraits.keeps_statistics && rows.max != nullptr) {
#pragma GCC unroll 12
    for (int r = 0; r < static_cast<int>(kRows); ++r) {
      float* max = rows.max + (row + r) * kLanes;
      store(max, maximum(load(max), row_maximum(tile[r])));
    }
  }
  return true;
}

/// score_microkernel for tall tiles. The scores of a finished tile wait in the memory of its weights.
template <ScoreTraits kTraits, class Format, std::size_t kRows, std::size_t kVectors>
HEED_INLINE std::int64_t score_microkernel_in_memory(Tile<kRows, kVectors>& tile, const ScoreColumn& column,
                                                     const TileRows& rows, std::int64_t row,
                                                     std::int64_t tiles) {
  constexpr auto kHeight = static_cast<std::int64_t>(kRows);
  const std::int64_t ldw = column.ldw, depth = column.depth;
  const std::int64_t part = depth / kHeight / 4 * 4;  // whole unrolled iterations
  for (std::int64_t t = 0; t <= tiles; ++t) {
    float* here = column.weights + t * kHeight * ldw;
    const float* query = column.q + t * kHeight * column.ldq;
    const bool last = t == tiles;
    clear(tile);
#pragma GCC unroll 12
    for (std::int64_t r = 0; r < kHeight; ++r) {
      if (t > 0) {
        Vf score[kVectors];
#pragma GCC unroll 3
        for (std::size_t v = 0; v < kVectors; ++v)
          score[v] = load(here + (r - kHeight) * ldw + static_cast<std::int64_t>(v) * kLanes);
        softmax_row<kTraits>(score, rows, row + (t - 1) * kHeight + r, here + (r - kHeight) * ldw);
      }
      const std::int64_t begin = r * part;
      if (!last)
        accumulate<Format>(tile, query + begin, column.ldq, column.panel + begin * kPanel,
                           r == kHeight - 1 ? depth - begin : part);
    }
    if (last) break;
    if (!fits_shift<kTraits, Format>(tile, rows, row + t * kHeight, Mask{}, splat(column.scale),
                                     column.decay))
      return t;
#pragma GCC unroll 12
    for (std::int64_t r = 0; r < kHeight; ++r)
#pragma GCC unroll 3
      for (std::size_t v = 0; v < kVectors; ++v)
        store(here + r * ldw + static_cast<std::int64_t>(v) * kLanes, tile[r][v]);
  }
  return tiles;
}

/// Computes the weights of `tiles` score tiles of a column, against the first kVectors vectors of its panel.
/// The rows are row … of the task. All these keys are allowed for all rows. Returns the number of finished
/// tiles; it stops before a tile that outgrows the shift of one of its rows.
template <ScoreTraits kTraits, class Format, std::size_t kRows, std::size_t kVectors>
std::int64_t score_microkernel(const ScoreColumn& in_memory, const TileRows& rows, std::int64_t row,
                               std::int64_t tiles) {
  using Scores = Tile<kRows, kVectors>;
  constexpr auto kHeight = static_cast<std::int64_t>(kRows);
  const ScoreColumn column = in_memory;  // in registers: stores to weights cannot change it
  Scores a, b;
  const Mask valid = greater(splat(static_cast<float>(column.last_keys)), lane_numbers());
  const auto start = [&](Scores & tile, std::int64_t t) __attribute__((always_inline)) {
    clear(tile);
    accumulate<Format>(tile, column.q + t * kHeight * column.ldq, column.ldq, column.panel, column.depth);
  };
  const auto finish = [&](const Scores& tile, std::int64_t t) __attribute__((always_inline)) {
#pragma GCC unroll 12
    for (int r = 0; r < static_cast<int>(kRows); ++r)
      softmax_row<kTraits>(tile[r], rows, row + t * kHeight + r,
                           column.weights + (t * kHeight + r) * column.ldw);
  };
  const auto fits = [&](Scores & tile, std::int64_t t) __attribute__((always_inline)) {
    return fits_shift<kTraits, Format>(tile, rows, row + t * kHeight, valid, splat(column.scale),
                                       column.decay);
  };
  if constexpr (kRows * kVectors > 12) {
    return score_microkernel_in_memory<kTraits, Format>(a, column, rows, row, tiles);
  } else if constexpr (!kPipelined) {
    for (std::int64_t t = 0; t < tiles; ++t) {
      start(a, t);
      if (!fits(a, t)) return t;
      finish(a, t);
    }
    return tiles;
  } else {
    const auto advance = [&](Scores & next, const Scores& done, std::int64_t t)
        __attribute__((always_inline)) {
      column.prefetch.fetch(t * kHeight, kHeight);
      score_step<kTraits, Format>(next, done, column, rows, row, t);
    };
    start(a, 0);
    if (!fits(a, 0)) return 0;
    for (std::int64_t t = 1; t < tiles; t += 2) {
      advance(b, a, t);
      if (!fits(b, t)) return t;
      if (t + 1 == tiles) {
        finish(b, t);
        return tiles;
      }
      advance(a, b, t + 1);
      if (!fits(a, t + 1)) return t + 1;
    }
    finish(a, tiles - 1);
    return tiles;
  }
}

/// output [kRowCount][ldo] += weights [kRowCount][ldw] x values [keys][ldv], kVectors vectors wide. The
/// product is summed separately first. With kContinue, the sum continues from `output` instead, as if the
/// earlier keys were part of it.
template <class Format, int kRowCount, int kVectors, bool kContinue>
void value_tile(const float* weights, std::int64_t ldw, const float* values, std::int64_t ldv,
                std::int64_t keys, float* output, std::int64_t ldo) {
  Vf acc[std::size_t{kRowCount}][std::size_t{kVectors}];
#pragma GCC unroll 12
  for (int r = 0; r < kRowCount; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) acc[r][v] = kContinue ? load(output + r * ldo + v * kLanes) : zero();
#pragma GCC unroll 4
  for (std::int64_t k = 0; k < keys; ++k) {
    Vf value[std::size_t{kVectors}];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) value[v] = load(values + k * ldv + v * kLanes);
#pragma GCC unroll 12
    for (int r = 0; r < kRowCount; ++r) {
      const Vf w = splat(weights[r * ldw + k]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) acc[r][v] = Format::multiply_add(w, value[v], acc[r][v]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRowCount; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      float* o = output + r * ldo + v * kLanes;
      store(o, kContinue ? acc[r][v] : add(load(o), acc[r][v]));
    }
}

}  // namespace heed::detail::HEED_ISA
