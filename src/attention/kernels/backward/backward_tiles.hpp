// The five products of the gradients, as tiles. Weights are p, g is the output's gradient, and delta is
// defined in backward.hpp; all for a block of rows i against a KV block j:
//
//   s = q k^T                        p = exp2(s - lse)      score tiles, as in the forward pass
//   d = g v^T - delta                ds = p * d             same tile shape; its sums start at -delta
//   dv += p^T g     dk += ds^T q     dq += ds k             product tiles
#pragma once

#include "attention/kernels/softmax/tiles.hpp"

namespace heed::detail::HEED_ISA {

/// The rows' state for the gradients, as arrays over the rows of a block.
struct GradientRows {
  const float* shift;  // an integer near the row's lse, in units of log 2
  const float* delta;  // subtracted from every element of d
};

/// The operands of a score tile and of its gradient: rows of q and g, panels of keys and values, and the
/// targets of weights and score gradients.
struct GradientTile {
  const float* query;
  const float* grad;
  std::int64_t query_ld, grad_ld;
  const float* keys;
  const float* values;
  std::int64_t depth, value_depth;
  float* weights;
  float* score_grads;
  std::int64_t ld;
};

template <bool kFlushed>
HEED_INLINE void recompute_weights_of_row(Vf (&score)[kPanelVectors], float shift, float* weights) {
  const Vf c = splat(kRound - shift);
#pragma GCC unroll 3
  for (std::size_t v = 0; v < kPanelVectors; ++v) {
    if constexpr (kFlushed)
      score[v] = exp2_flushed(score[v], c, splat(shift + kSmallestExponent));
    else
      score[v] = exp2_bounded(score[v], c);
    store(weights + v * kLanes, score[v]);
  }
}

HEED_INLINE void start_at(ScoreTile& tile, const float* delta) {
#pragma GCC unroll 4
  for (int r = 0; r < kTileRows; ++r)
#pragma GCC unroll 3
    for (std::size_t v = 0; v < kPanelVectors; ++v) tile[r][v] = splat(-delta[r]);
}

/// Weights and score gradients of kTileRows rows against one panel of keys, all of them allowed. The
/// exponentials overlap with the second product (see score_step).
template <bool kFlushed>
HEED_INLINE void gradient_tile(const GradientTile& t, const GradientRows& rows, std::int64_t row) {
  ScoreTile p, d;
  const float* query = t.query + row * t.query_ld;
  const float* grad = t.grad + row * t.grad_ld;
  clear(p);
  accumulate<F32Format>(p, query, t.query_ld, t.keys, t.depth);
  if constexpr (kPipelined) {
    start_at(d, rows.delta + row);
    const std::int64_t quarter = t.value_depth / kTileRows;
#pragma GCC unroll 4
    for (int r = 0; r < kTileRows; ++r) {
      recompute_weights_of_row<kFlushed>(p[r], rows.shift[row + r], t.weights + (row + r) * t.ld);
      accumulate<F32Format>(d, grad + r * quarter, t.grad_ld, t.values + r * quarter * kPanel,
                            r == kTileRows - 1 ? t.value_depth - r * quarter : quarter);
    }
#pragma GCC unroll 4
    for (int r = 0; r < kTileRows; ++r)
#pragma GCC unroll 3
      for (std::size_t v = 0; v < kPanelVectors; ++v)
        store(t.score_grads + (row + r) * t.ld + v * kLanes, mul(p[r][v], d[r][v]));
  } else {
#pragma GCC unroll 4
    for (int r = 0; r < kTileRows; ++r)
      recompute_weights_of_row<kFlushed>(p[r], rows.shift[row + r], t.weights + (row + r) * t.ld);
    start_at(d, rows.delta + row);
    accumulate<F32Format>(d, grad, t.grad_ld, t.values, t.value_depth);
#pragma GCC unroll 4
    for (int r = 0; r < kTileRows; ++r)
#pragma GCC unroll 3
      for (std::size_t v = 0; v < kPanelVectors; ++v)
        store(t.score_grads + (row + r) * t.ld + v * kLanes,
              mul(load(t.weights + (row + r) * t.ld + v * kLanes), d[r][v]));
  }
}

template <bool kFlushed>
void gradient_tiles(const GradientTile& t, const GradientRows& rows, std::int64_t row, std::int64_t end) {
  for (; row < end; row += kTileRows) gradient_tile<kFlushed>(t, rows, row);
}

/// c [rows][columns] += a x b over `steps`; columns are a multiple of kLanes, rows of two. Rows of the
/// matrices are lda, ldb and ldc apart. Element (r, s) of a is a[r * lda + s], or a[s * lda + r] if
/// kTransposed.
struct MatrixProduct {
  const float* a;
  std::int64_t lda;
  const float* b;
  std::int64_t ldb;
  float* c;
  std::int64_t ldc;
  std::int64_t rows, columns, steps;
};

/// A tile of c, from a row and a column on. Its product is summed separately first.
template <int kRowCount, int kVectors, bool kTransposed>
void product_tile(const MatrixProduct& product, std::int64_t row, std::int64_t column) {
  const std::int64_t lda = product.lda, ldb = product.ldb, ldc = product.ldc, steps = product.steps;
  const float* a = product.a + row * (kTransposed ? 1 : lda);
  const float* b = product.b + column;
  float* c = product.c + row * ldc + column;
  Vf acc[std::size_t{kRowCount}][std::size_t{kVectors}];
#pragma GCC unroll 12
  for (int r = 0; r < kRowCount; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) acc[r][v] = zero();
#pragma GCC unroll 4
  for (std::int64_t s = 0; s < steps; ++s) {
    Vf rows_of_b[std::size_t{kVectors}];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) rows_of_b[v] = load(b + s * ldb + v * kLanes);
#pragma GCC unroll 12
    for (int r = 0; r < kRowCount; ++r) {
      const Vf x = splat(kTransposed ? a[s * lda + r] : a[r * lda + s]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) acc[r][v] = mul_add(x, rows_of_b[v], acc[r][v]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRowCount; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      float* to = c + r * ldc + v * kLanes;
      store(to, add(load(to), acc[r][v]));
    }
}

/// All rows of kVectors vectors from a column on.
template <int kVectors, bool kTransposed>
void product_rows(const MatrixProduct& product, std::int64_t column) {
  constexpr int kTall = kVectors <= (kRegisters >= 32 ? 2 : 1) ? kGroupRows : kValueRows;
  std::int64_t r = 0;
  for (; r + kTall <= product.rows; r += kTall)
    product_tile<kTall, kVectors, kTransposed>(product, r, column);
  for (; r + kTileRows <= product.rows; r += kTileRows)
    product_tile<kTileRows, kVectors, kTransposed>(product, r, column);
  for (; r < product.rows; r += 2) product_tile<2, kVectors, kTransposed>(product, r, column);
}

template <bool kTransposed>
auto product_rows_of(std::int64_t vectors) {
  if constexpr (kValueVectors == 4) {
    if (vectors >= 4) return product_rows<4, kTransposed>;
    if (vectors == 3) return product_rows<3, kTransposed>;
  }
  return vectors >= 2 ? product_rows<2, kTransposed> : product_rows<1, kTransposed>;
}

template <bool kTransposed>
void add_product(const MatrixProduct& product) {
  for (std::int64_t column = 0; column < product.columns; column += kValueVectors * kLanes)
    product_rows_of<kTransposed>((product.columns - column) / kLanes)(product, column);
}

}  // namespace heed::detail::HEED_ISA
