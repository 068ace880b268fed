// Weights and score gradients of a block of rows and a KV block, as operands of the products by matrix tiles
// (gradient_flow.hpp), and the sums of the keys' gradients. The operand g is packed as given, so a row's
// factor is multiplied into its weights and into d.
#pragma once

#include "attention/kernels/backward/backward_rows.hpp"
#include "attention/kernels/backward/matrix_operands.hpp"

namespace heed::detail::HEED_ISA {

/// Index within the group of row `i` of a pair. The rows of a pair are kMatrixRows apart.
HEED_INLINE std::int64_t row_of_pair(std::int64_t pair, int i) { return pair + i * kMatrixRows; }

/// A panel of keys for a group of rows.
struct GroupPanel {
  std::int64_t row;  // the group's first row, counted within the block
  std::int64_t key;  // the panel's first key, counted within the segment
};

// A panel is handled in strips of two tiles.
inline constexpr int kStrips = kPanelVectors / 2;

/// Products of a group's rows with two strips of keys, tile after tile.
using TwoStrips = float[4][kGroupRows][kLanes];

/// The products of a group's rows with two strips, scores (not scaled) and d = <g, v>, and what turns them
/// into weights and score gradients.
struct GroupProducts {
  alignas(64) TwoStrips of_queries_and_grads[2];
  /// For each row kRound - shift, the least score whose weight is not 0, factor, and -delta.
  float terms[4][kGroupRows];

  [[nodiscard]] float* scores(int strip) { return of_queries_and_grads[0][2 * strip][0]; }
  [[nodiscard]] float* d(int strip) { return of_queries_and_grads[1][2 * strip][0]; }
  [[nodiscard]] const float* scores(int strip) const { return of_queries_and_grads[0][2 * strip][0]; }
  [[nodiscard]] const float* d(int strip) const { return of_queries_and_grads[1][2 * strip][0]; }
};

/// Where the operands begin that hold a group's weights and score gradients for a panel.
struct GradientOperands {
  float* weights;  // by columns: pairs of rows; those of score gradients follow kPanelOperand later
  float* rows;     // score gradients by rows: pairs of keys
};

/// Converts the weights and score gradients of a pair of rows, for two vectors, to operands. `to` points to
/// the pair and the first vector. Element [i][k] belongs to row i and vector k.
template <class Format>
HEED_INLINE void split_pair(const Vf (&weights)[2][2], const Vf (&score_grads)[2][2],
                            const GradientOperands& to) {
  constexpr std::int64_t kPart = kRowPairs * kLanes, kColumn = Format::kWeightParts * kPart;
  // A store whose line is not in the first-level cache delays the loads of tiles after it. So the line is
  // prefetched two pairs ahead.
  constexpr std::int64_t kAhead = 2 * kLanes;
  const auto store_pairs = [&](Vf low, Vf high, float* at) __attribute__((always_inline)) {
    if constexpr (Format::kWeightParts == 1) __builtin_prefetch(at + kAhead, 1);
    Vf parts[Format::kWeightParts];
    Format::pair(low, high, parts);
#pragma GCC unroll 3
    for (int part = 0; part < Format::kWeightParts; ++part) store(at + part * kPart, parts[part]);
  };
#pragma GCC unroll 2
  for (int k = 0; k < 2; ++k) {
    store_pairs(weights[0][k], weights[1][k], to.weights + k * kColumn);
    store_pairs(score_grads[0][k], score_grads[1][k], to.weights + kPanelOperand + k * kColumn);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i)
    Format::split_weights(
        score_grads[i][0], score_grads[i][1],
        reinterpret_cast<std::uint16_t*>(to.rows + i * kMatrixRows * Format::kWeightParts * kKeyPairs),
        2 * kMatrixRows * kKeyPairs);
}

/// The place of a pair of rows, and of the vectors from `v` on, in such operands.
template <class Format>
HEED_INLINE GradientOperands operands_at(const GradientOperands& to, std::int64_t pair, int v) {
  return {to.weights + v * (Format::kWeightParts * kRowPairs * kLanes) + pair * kLanes,
          to.rows + v / 2 * (kMatrixRows * kLanes) + pair * kLanes};
}

/// Converts a strip of a group's products to operands, if scores are scale times a product: two rows at a
/// time, in equal shares of `calls` calls, between tile products. kFlushed: scores may be far below lse.
/// kCut: the rows' positions do not allow all of the panel's keys.
template <class Format, bool kFlushed, bool kCut>
class RecomputedRows {
 public:
  explicit RecomputedRows(const BackwardTaskState& state)
      : scale_(in_register(splat(state.call.forward.log2_scale))) {}

  /// Begins the strip of a panel whose vectors are those from `first` on, and whose products are in `from`.
  /// `query_row` has the group's rows, and `key` is the panel's first key, counted within the segment.
  HEED_INLINE void start(const GroupProducts& products, int from, const QueryRow* query_row, std::int64_t key,
                         int first, const GradientOperands& to, std::int64_t calls) {
    scores_ = products.scores(from);
    terms_ = products.terms[0];
    query_row_ = query_row;
    key_ = key;
    first_ = first;
    to_ = operands_at<Format>(to, 0, first);
    shares_ = {kMatrixRows, calls};
  }
  HEED_INLINE void operator()() {
    shares_.take([&](std::int64_t pair) __attribute__((always_inline)) { convert_pair(pair); });
  }
  /// Converts what is left.
  HEED_INLINE void finish() {
    shares_.finish([&](std::int64_t pair) __attribute__((always_inline)) { convert_pair(pair); });
  }

 private:
  static constexpr bool kInlined = Format::kParts == 1 && !kEmulatesMatrixTiles;  // see SoftmaxRows

  HEED_INLINE void convert_pair(std::int64_t pair) {
    if constexpr (kInlined)
      convert(pair);
    else
      convert_out_of_line(pair);
  }
  [[gnu::noinline]] void convert_out_of_line(std::int64_t pair) { convert(pair); }
  HEED_INLINE void convert(std::int64_t pair) {
    constexpr std::int64_t kToD = sizeof(TwoStrips) / sizeof(float);
    const float* scores = scores_ + pair * kLanes;
    const float* terms = terms_ + pair;
    Vf weights[2][2], score_grads[2][2];
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const float* of_row = terms + row_of_pair(0, i);
      const Vf c = splat(of_row[0]), smallest = splat(of_row[kGroupRows]),
               factor = splat(of_row[2 * kGroupRows]), minus_delta = splat(of_row[3 * kGroupRows]);
#pragma GCC unroll 2
      for (int k = 0; k < 2; ++k) {
        const float* at = scores + (k * kGroupRows + row_of_pair(0, i)) * kLanes;
        const Vf score = mul(load(at), scale_);
        Vf p = kFlushed ? exp2_.flushed(score, c, smallest) : exp2_.bounded(score, c);
        if constexpr (kCut)
          p = keep(range_in_panel(query_row_[row_of_pair(pair, i)], key_).lanes(first_ + k), p);
        weights[i][k] = mul(p, factor);
        score_grads[i][k] = mul(p, mul_add(load(at + kToD), factor, minus_delta));
      }
    }
    split_pair<Format>(weights, score_grads, {to_.weights + pair * kLanes, to_.rows + pair * kLanes});
  }

  Vf scale_;
  Exp2InRegisters exp2_;
  const float *scores_ = nullptr, *terms_ = nullptr;
  GradientOperands to_ = {};
  const QueryRow* query_row_ = nullptr;
  std::int64_t key_ = 0;
  int first_ = 0;
  EqualShares shares_;  // of pairs of rows
};

/// The same for modified scores of a panel, by way of memory. Its first strip is in `from`. Returns false if
/// a score exceeds what f32 holds.
template <class Format>
bool recompute_generally(const BackwardTaskState& state, const Block& block, const GroupPanel& panel,
                         const HeadBits& bits, const GroupProducts& products, int from,
                         const GradientOperands& to) {
  const MatrixTiles::Lent lent(static_cast<bool>(state.call.forward.score_mod));
  const Vf scale = splat(state.call.forward.log2_scale);
  for (std::int64_t pair = 0; pair < kMatrixRows; ++pair) {
    alignas(64) float scores[2][kPanel], d[2][kPanel], weights[2][kPanel];
    for (int i = 0; i < 2; ++i) {
      const std::int64_t r = row_of_pair(pair, i);
      const Vf factor = splat(state.w.factor[block.row + panel.row + r]);
#pragma GCC unroll 4
      for (int v = 0; v < kPanelVectors; ++v) {
        const std::int64_t at = (v * kGroupRows + r) * kLanes;
        store(scores[i] + v * kLanes, mul(load(products.scores(from) + at), scale));
        store(d[i] + v * kLanes, mul(load(products.d(from) + at), factor));
      }
      if (!general_row(state, block, panel.row + r, panel.key, bits, {scores[i], d[i], weights[i], d[i]}))
        return false;
#pragma GCC unroll 4
      for (int v = 0; v < kPanelVectors; ++v)
        store(weights[i] + v * kLanes, mul(load(weights[i] + v * kLanes), factor));
    }
#pragma GCC unroll 2
    for (int v = 0; v < kPanelVectors; v += 2) {
      const auto two = [&](const float(&rows)[2][kPanel], Vf(&vectors)[2][2]) __attribute__((always_inline)) {
        for (int i = 0; i < 2; ++i)
          for (int k = 0; k < 2; ++k) vectors[i][k] = load(rows[i] + (v + k) * kLanes);
      };
      Vf of_weights[2][2], of_grads[2][2];
      two(weights, of_weights);
      two(d, of_grads);
      split_pair<Format>(of_weights, of_grads, operands_at<Format>(to, pair, v));
    }
  }
  return true;
}

/// The key gradients' sums for panel `panel` from column `column` on. The layout is [panel][column / 16][key
/// / 16][16][16], tile after tile.
inline TileMatrix key_sums_at(float* sums, std::int64_t panel, std::int64_t column, std::int64_t columns) {
  constexpr std::int64_t kTile = kMatrixRows * kLanes;
  return {sums + panel * kPanel * columns + column * kPanel, kLanes, kTile, kPanelVectors * kTile};
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
