// Products of rows with a model's weights in bf16, by matrix tiles.
#pragma once

#include "attention/kernels/softmax/tile_products.hpp"

namespace heed::detail::HEED_ISA {

#if defined(HEED_MATRIX_TILES)
inline constexpr bool kMultipliesBf16Panels = UnitFormat::kParts == 1;

/// Two rows of tiles at a time. Tiles of b are read again for the next two, so they stay in the first-level
/// cache; results are stored while the next product begins.
inline void add_bf16_panel(const cpu::Bf16Panel& p) {
  using Elements = typename UnitFormat::Elements;
  const MatrixTiles tiles;
  const TileMatrix b = {p.b, 32, 16, 16 * 32};
  const auto a_at = [&](std::int64_t row) { return TileMatrix{p.a + row / 16 * p.a_row, 16, p.a_row, 256}; };
  const auto c_at = [&](std::int64_t row) { return result_rows(p.c + row * p.c_stride, p.c_stride); };
  alignas(64) float unused[2 * kMatrixRows * 32];  // takes stores when nothing is deferred
  Interleaved<NoWork> way = {result_rows(unused, 32), {}};
  std::int64_t row = 0;
  for (; row + 32 <= p.rows; row += 32) {
    for (std::int64_t r = row + 32; r < smaller(row + 64, p.rows); ++r) {
      __builtin_prefetch(p.c + r * p.c_stride, 1);
      __builtin_prefetch(p.c + r * p.c_stride + 16, 1);
    }
    multiply_tiles_once<Elements, 2, 2, true, Streams::none>(a_at(row), b, p.steps, c_at(row), way);
  }
  if constexpr (MatrixTiles::kHasRegisters) store_tiles<MatrixTiles>(way.deferred);
  OnItsOwn last;
  if (row < p.rows) multiply_tiles_once<Elements, 1, 2, true>(a_at(row), b, p.steps, c_at(row), last);
}

inline void round_to_bf16(const float* from, std::int64_t size, std::uint16_t* to) {
  std::int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) store_bf16(to + i, load(from + i));
  if (i == size) return;
  std::uint16_t rest[kLanes];
  store_bf16(rest, load_first(from + i, size - i));
  for (int lane = 0; i < size; ++i, ++lane) to[i] = rest[lane];
}
#else
inline constexpr bool kMultipliesBf16Panels = false;
void add_bf16_panel(const cpu::Bf16Panel& p);
void round_to_bf16(const float* from, std::int64_t size, std::uint16_t* to);
#endif

}  // namespace heed::detail::HEED_ISA
