// Register tiling: the rows and vectors of a tile.
#pragma once

#include <cstdint>

#if !defined(HEED_MATRIX_TILES)
#include "attention/kernels/shared/no_matrix_tiles.hpp"
#endif

namespace heed::detail::HEED_ISA {

HEED_INLINE std::int64_t round_up(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }
HEED_INLINE std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
HEED_INLINE std::int64_t larger(std::int64_t a, std::int64_t b) { return a > b ? a : b; }

// A score tile is 4 rows x 3 vectors of keys: 12 accumulators. They hide the latency of two multiply-adds per
// cycle (4 cycles * 2 = 8). With 32 registers, they also leave room for a finished tile while the next one
// accumulates. Its exponentials overlap with the multiply-adds (see score_microkernel). Panels for matrix
// tiles are one or two steps of their product with values. With one, scores stay in the first-level cache
// beside queries, weights and output. Products of parts are longer, and gradients alone have room for two.
inline constexpr int kTileRows = 4;
#if defined(HEED_PARTS_OF)
inline constexpr bool kHasParts = true;
#else
inline constexpr bool kHasParts = false;
#endif
inline constexpr int kPanelVectors = !kHasMatrixTiles ? 3 : kHasParts || !kHasForward ? 4 : 2;
inline constexpr int kPanel = kPanelVectors * kLanes;  // keys per panel
// Rows are handled in groups: three score tiles (two of bf16 pairs), two value tiles (or one); or two matrix
// tiles, where rows are padded to whole tiles.
inline constexpr int kMatrixRows = 16;
inline constexpr int kGroupRows = kHasMatrixTiles ? 2 * kMatrixRows : 12;
inline constexpr int kRowUnit = kHasMatrixTiles ? kMatrixRows : kTileRows;
// A value tile is 6 rows x 4 vectors (24 accumulators), or 6 x 2 with only 16 registers.
inline constexpr int kValueRows = 6;
inline constexpr int kValueVectors = kRegisters >= 32 ? 4 : 2;
inline constexpr bool kPipelined = kRegisters >= 32;

}  // namespace heed::detail::HEED_ISA
