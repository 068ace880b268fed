// Products of rows with a model's weights in bf16, by matrix tiles.
#pragma once

#include "attention/kernels/softmax/tile_products.hpp"

namespace heed::detail::HEED_ISA {

#if defined(HEED_MATRIX_TILES)
inline constexpr bool kMultipliesBf16Panels = UnitFormat::kParts == 1;

inline void add_bf16_panel(const cpu::Bf16Panel& p) {
  const MatrixTiles tiles;
  const TileMatrix b = {p.b, 32, 16, 16 * 32};
  for (std::int64_t row = 0; row < p.rows; row += 32)
    multiply_group<typename UnitFormat::Elements, true>({p.rows - row,
                                                         {p.a + row / 16 * p.a_row, 16, p.a_row, 256},
                                                         b,
                                                         result_rows(p.c + row * 32, 32),
                                                         p.steps,
                                                         2});
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
