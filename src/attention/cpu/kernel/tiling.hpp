// Tiling by registers: how many rows and vectors a tile has.
#pragma once

#include <cstdint>

#if !defined(HEED_MATRIX_TILES)
#include "attention/cpu/targets/no_matrix_tiles.hpp"
#endif

namespace heed::detail::HEED_ISA {

HEED_INLINE std::int64_t round_up(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }
HEED_INLINE std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
HEED_INLINE std::int64_t larger(std::int64_t a, std::int64_t b) { return a > b ? a : b; }

// A score tile is 4 rows x 3 vectors of keys: 12 accumulators, enough to hide the latency of two
// multiply-adds a cycle (4 cycles * 2 = 8), and so few that with 32 registers a second tile stays in
// registers while the next accumulates: its exponentials run beside the multiply-adds (see
// score_microkernel). Matrix tiles go over panels of two steps of their product with values.
inline constexpr int kTileRows = 4;
inline constexpr int kPanelVectors = kHasMatrixTiles ? 4 : 3;
inline constexpr int kPanel = kPanelVectors * kLanes;  // keys a panel
// Rows are handled in groups: three score tiles (or two of bf16 pairs), two (or one) value tiles; or two
// matrix tiles, where rows are filled up to one.
inline constexpr int kMatrixRows = 16;
inline constexpr int kGroupRows = kHasMatrixTiles ? 2 * kMatrixRows : 12;
inline constexpr int kRowUnit = kHasMatrixTiles ? kMatrixRows : kTileRows;
// A value tile is 6 rows x 4 vectors (24 accumulators), or 6 x 2 where there are only 16 registers.
inline constexpr int kValueRows = 6;
inline constexpr int kValueVectors = kRegisters >= 32 ? 4 : 2;
inline constexpr bool kPipelined = kRegisters >= 32;

}  // namespace heed::detail::HEED_ISA
