// The two matrix products: tiles of scores, with the exponential taken while they are still in registers, and
// tiles of the output. Both multiply rows whose elements are broadcast one by one with packed panels that are
// read as vectors.
#pragma once

#include "attention/cpu/kernel/exp2.hpp"

namespace heed::detail::HEED_ISA {

/// The score of a forbidden key. Allowed scores lie within +-kLargestScore, so it is below all of them by far
/// more than the 125 below which a weight is 0.
inline constexpr float kForbidden = -0x1p21f;
inline constexpr float kLargestScore = 0x1p20f;

// Tiling by registers. A score tile is 4 rows x 3 vectors of keys: 12 accumulators, enough to hide the
// latency of two multiply-adds a cycle (4 cycles * 2 = 8), and so few that with 32 registers a second tile
// stays in registers while the next accumulates: its exponentials run beside the multiply-adds (see
// score_microkernel).
inline constexpr int kTileRows = 4;
inline constexpr int kPanelVectors = 3;
inline constexpr int kPanel = kPanelVectors * kLanes;  // keys a panel
// Products of pairs take 6 cycles, so that 12 accumulators do not keep two units busy: 18 do. Two such tiles
// are more than the registers hold, and finished scores wait in memory.
inline constexpr int kBf16DotRows = 6;
// Rows are handled in groups: three score tiles (or two of pairs), two (or one) value tiles.
inline constexpr int kGroupRows = 12;
// A value tile is 6 rows x 4 vectors (24 accumulators), or 6 x 2 where there are only 16 registers.
inline constexpr int kValueRows = 6;
inline constexpr int kValueVectors = kRegisters >= 32 ? 4 : 2;
inline constexpr bool kPipelined = kRegisters >= 32;

/// Scores of kRows rows against kVectors vectors of keys: kPanelVectors, or fewer at the end of a sequence,
/// where a tile may be taller for it.
template <std::size_t kRows, std::size_t kVectors>
using Tile = Vf[kRows][kVectors];
using ScoreTile = Tile<kTileRows, kPanelVectors>;

/// A bit for each lane of a vector of weights: those that may enter a row's list of the most attended keys.
template <int kBits>
struct CandidateBitsOf {
  using Type = std::uint8_t;
};
template <>
struct CandidateBitsOf<16> {
  using Type = std::uint16_t;
};
using CandidateBits = CandidateBitsOf<kLanes>::Type;

/// State of query rows, arrays over the rows of a task. Unnormalised weights are kGain *
/// 2^(score - shift).
struct Rows {
  float* shift;      // an integer: near the largest score so far
  float* threshold;  // a score above it asks for a larger shift
  float* sum;        // [row][kLanes]: partial sums of the weights
  float* entropy;    // [row][kLanes]: partial sums of weight * (score - shift)
  float* max;        // [row][kLanes]: partial maxima of the scores
  float* rounded;    // [row][kLanes]: partial sums of the weights as rounded to bf16; with pairs only
  // Of rows with lists:
  float* entry_threshold;         // what a weight must exceed to enter the row's list
  CandidateBits* candidate_bits;  // [rows][candidate_ld], one a vector of keys: from the panel under way on
  std::int64_t candidate_ld;
};

/// Memory that the next KV block will read: work on a row of queries asks for `share` bytes of it, so
/// that the second-level cache has it in time and no row waits for a burst of requests.
struct BlockPrefetch {
  const char* data = nullptr;
  std::int64_t share = 0;

  HEED_INLINE void fetch(std::int64_t row, std::int64_t rows) const {
    for (std::int64_t byte = row * share; byte < (row + rows) * share; byte += 64)
      __builtin_prefetch(data + byte, 0, 2);
  }
  BlockPrefetch from(std::int64_t row) const { return {data + row * share, share}; }
};

/// a * b + c; with kBf16Dot every lane of a and b holds two bf16, and both products are added.
template <bool kBf16Dot>
HEED_INLINE Vf multiply_add(Vf a, Vf b, Vf c) {
  if constexpr (kBf16Dot)
    return dot_bf16(a, b, c);
  else
    return mul_add(a, b, c);
}

/// acc += rows [kRows] (stride ld) x the first kVectors vectors of panel [depth][kPanel], over `depth`.
template <bool kBf16Dot, std::size_t kRows, std::size_t kVectors>
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
      for (std::size_t v = 0; v < kVectors; ++v) acc[r][v] = multiply_add<kBf16Dot>(x, key[v], acc[r][v]);
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

/// What a score microkernel does besides its weights; a template argument, so that none of it costs where it
/// is off.
struct ScoreTraits {
  bool tracks_maxima;       ///< shifts are not 0, and a tile may outgrow them
  bool keeps_statistics;    ///< entropy and maxima are kept
  bool tail;                ///< the last vector has keys in its first `valid` lanes only
  bool pairs;               ///< queries and keys are pairs of bf16, unscaled
  bool candidates = false;  ///< rows have top-k lists, and candidates are marked
};

/// Notes which weights of a row of a tile exceed what its list asks for.
template <std::size_t kVectors>
HEED_INLINE void note_candidates(const Vf (&weight)[kVectors], const Rows& rows, std::int64_t row) {
  CandidateBits* candidate_bits = rows.candidate_bits + row * rows.candidate_ld;
  const Vf entry = splat(rows.entry_threshold[row]);
#pragma GCC unroll 3
  for (std::size_t v = 0; v < kVectors; ++v)
    candidate_bits[v] = static_cast<CandidateBits>(bits_of(greater(weight[v], entry)));
}

/// Weights of one row of a tile: exp2 of its scores, added to the row's sums, stored to `weights`.
template <ScoreTraits kTraits, std::size_t kVectors>
HEED_INLINE void softmax_row(const Vf (&score)[kVectors], const Rows& rows, std::int64_t row,
                             float* weights) {
  const Vf shift = splat(kTraits.tracks_maxima ? rows.shift[row] : 0.0f);
  const Vf c = sub(splat(kRound), shift);
  Vf sum = load(rows.sum + row * kLanes);
  Vf entropy = kTraits.keeps_statistics ? load(rows.entropy + row * kLanes) : zero();
  Vf p[kVectors];
#pragma GCC unroll 3
  for (std::size_t v = 0; v < kVectors; ++v) {
    if constexpr (kTraits.tracks_maxima || kTraits.tail)
      p[v] = exp2_flushed(score[v], c, add(shift, splat(kSmallestExponent)));
    else
      p[v] = exp2_bounded(score[v], c);
    store(weights + v * kLanes, p[v]);
    sum = add(sum, p[v]);
    if constexpr (kTraits.keeps_statistics)
      entropy = mul_add(p[v], kTraits.tracks_maxima ? sub(score[v], shift) : score[v], entropy);
  }
  store(rows.sum + row * kLanes, sum);
  if constexpr (kTraits.keeps_statistics) store(rows.entropy + row * kLanes, entropy);
  if constexpr (kTraits.candidates) note_candidates(p, rows, row);
}

/// Lane-wise largest score of a row of a tile.
template <std::size_t kVectors>
HEED_INLINE Vf row_maximum(const Vf (&score)[kVectors]) {
  Vf max = score[0];
#pragma GCC unroll 3
  for (std::size_t v = 1; v < kVectors; ++v) max = maximum(max, score[v]);
  return max;
}

/// One step of score_microkernel: accumulates the tile at `q` into `next`; between the parts of that work it
/// turns the finished tile `done` (rows done_row …), row by row, into weights. Out-of-order execution then
/// has both to choose from.
template <ScoreTraits kTraits, std::size_t kRows, std::size_t kVectors>
HEED_INLINE void score_step(Tile<kRows, kVectors>& next, const Tile<kRows, kVectors>& done, const float* q,
                            std::int64_t ldq, const float* panel, std::int64_t depth, const Rows& rows,
                            std::int64_t done_row, float* weights, std::int64_t ldw) {
  clear(next);
  const std::int64_t part = depth / static_cast<std::int64_t>(kRows) / 4 * 4;  // whole turns of its loop
#pragma GCC unroll 12
  for (int r = 0; r < static_cast<int>(kRows); ++r) {
    softmax_row<kTraits>(done[r], rows, done_row + r, weights + r * ldw);
    const std::int64_t begin = r * part;
    accumulate<kTraits.pairs>(next, q + begin, ldq, panel + begin * kPanel,
                              r == static_cast<int>(kRows) - 1 ? depth - begin : part);
  }
}

template <std::size_t kRows, std::size_t kVectors>
HEED_INLINE void scale_tile(Tile<kRows, kVectors>& tile, Vf scale) {
#pragma GCC unroll 12
  for (int r = 0; r < static_cast<int>(kRows); ++r)
#pragma GCC unroll 3
    for (std::size_t v = 0; v < kVectors; ++v) tile[r][v] = mul(tile[r][v], scale);
}

/// Completes a tile's scores. False where they outgrow a row's shift, and the tile must go through
/// score_general.
template <ScoreTraits kTraits, std::size_t kRows, std::size_t kVectors>
HEED_INLINE bool fits_shift(Tile<kRows, kVectors>& tile, const Rows& rows, std::int64_t row, Mask valid,
                            Vf scale) {
  if constexpr (kTraits.pairs) scale_tile(tile, scale);
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
  if constexpr (kTraits.keeps_statistics) {
#pragma GCC unroll 12
    for (int r = 0; r < static_cast<int>(kRows); ++r) {
      float* max = rows.max + (row + r) * kLanes;
      store(max, maximum(load(max), row_maximum(tile[r])));
    }
  }
  return true;
}

/// score_microkernel for tall tiles: the scores of the finished tile lie where its weights will.
template <ScoreTraits kTraits, std::size_t kRows, std::size_t kVectors>
HEED_INLINE std::int64_t score_microkernel_in_memory(Tile<kRows, kVectors>& tile, const float* q,
                                                     std::int64_t ldq, const float* panel, std::int64_t depth,
                                                     const Rows& rows, std::int64_t row, std::int64_t tiles,
                                                     float* weights, std::int64_t ldw, float scale) {
  constexpr auto kHeight = static_cast<std::int64_t>(kRows);
  const std::int64_t part = depth / kHeight / 4 * 4;  // whole turns of the unrolled loop
  for (std::int64_t t = 0; t <= tiles; ++t) {
    float* here = weights + t * kHeight * ldw;
    const float* query = q + t * kHeight * ldq;
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
        accumulate<kTraits.pairs>(tile, query + begin, ldq, panel + begin * kPanel,
                                  r == kHeight - 1 ? depth - begin : part);
    }
    if (last) break;
    if (!fits_shift<kTraits>(tile, rows, row + t * kHeight, Mask{}, splat(scale))) return t;
#pragma GCC unroll 12
    for (std::int64_t r = 0; r < kHeight; ++r)
#pragma GCC unroll 3
      for (std::size_t v = 0; v < kVectors; ++v)
        store(here + r * ldw + static_cast<std::int64_t>(v) * kLanes, tile[r][v]);
  }
  return tiles;
}

/// Weights of `tiles` score tiles, one below the other, against the first kVectors vectors of a packed panel:
/// rows row … of the task, queries q [rows][ldq], weights [rows][ldw]. All these keys are allowed for all
/// rows; of the last vector `last_keys` count. Returns how many tiles are done; it stops before one that
/// outgrows the shift of its row.
template <ScoreTraits kTraits, std::size_t kRows, std::size_t kVectors>
std::int64_t score_microkernel(const float* q, std::int64_t ldq, const float* panel, std::int64_t depth,
                               const Rows& rows, std::int64_t row, std::int64_t tiles, float* weights,
                               std::int64_t ldw, std::int64_t last_keys, float scale,
                               const BlockPrefetch& prefetch) {
  using Scores = Tile<kRows, kVectors>;
  constexpr auto kHeight = static_cast<std::int64_t>(kRows);
  Scores a, b;
  const Mask valid = greater(splat(static_cast<float>(last_keys)), lane_numbers());
  const auto start = [&](Scores & tile, std::int64_t t) __attribute__((always_inline)) {
    clear(tile);
    accumulate<kTraits.pairs>(tile, q + t * kHeight * ldq, ldq, panel, depth);
  };
  const auto finish = [&](const Scores& tile, std::int64_t t) __attribute__((always_inline)) {
#pragma GCC unroll 12
    for (int r = 0; r < static_cast<int>(kRows); ++r)
      softmax_row<kTraits>(tile[r], rows, row + t * kHeight + r, weights + (t * kHeight + r) * ldw);
  };
  const auto fits = [&](Scores & tile, std::int64_t t) __attribute__((always_inline)) {
    return fits_shift<kTraits>(tile, rows, row + t * kHeight, valid, splat(scale));
  };
  if constexpr (kRows * kVectors > 12) {
    return score_microkernel_in_memory<kTraits>(a, q, ldq, panel, depth, rows, row, tiles, weights, ldw,
                                                scale);
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
      prefetch.fetch(t * kHeight, kHeight);
      score_step<kTraits>(next, done, q + t * kHeight * ldq, ldq, panel, depth, rows, row + (t - 1) * kHeight,
                          weights + (t - 1) * kHeight * ldw, ldw);
    };
    start(a, 0);
    if (!fits(a, 0)) return 0;
    std::int64_t t = 1;
    for (; t + 1 < tiles; t += 2) {
      advance(b, a, t);
      if (!fits(b, t)) return t;
      advance(a, b, t + 1);
      if (!fits(a, t + 1)) return t + 1;
    }
    if (t == tiles) {
      finish(a, t - 1);
      return tiles;
    }
    advance(b, a, t);
    if (!fits(b, t)) return t;
    finish(b, t);
    return tiles;
  }
}

/// output [kRowCount][ldo] += weights [kRowCount][ldw] x values [keys][ldv], kVectors vectors wide. The
/// product is summed by itself first; with kContinue the sum goes on from what `output` holds, as if the keys
/// before were part of it.
template <int kRowCount, int kVectors, bool kContinue, bool kBf16Dot>
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
      for (int v = 0; v < kVectors; ++v) acc[r][v] = multiply_add<kBf16Dot>(w, value[v], acc[r][v]);
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
