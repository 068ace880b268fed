// Matrix tiles for processors that have dot products of bf16 pairs but no tiles. Results stay in vectors
// while they are summed. Only gradients use them; the forward pass has its own format for such products
// (bf16_pairs.hpp).
#pragma once

#include "attention/kernels/shared/tile_matrix.hpp"

#define HEED_MATRIX_TILES

namespace heed::detail::HEED_ISA {

inline constexpr bool kHasMatrixTiles = true;
inline constexpr bool kEmulatesMatrixTiles = false;
inline constexpr bool kHasForward = false;

struct MatrixTiles {
  static constexpr bool kHasRegisters = false;

  MatrixTiles() {}  // nothing to configure
  struct Lent {     // nor to keep
    explicit Lent(bool /*lends*/) {}
  };

  /// c [16 kRows][16 kColumns] = a x b, or c + a x b, over `steps` steps of 16 pairs. Eight rows at a time
  /// with two columns are 16 accumulators; a product of pairs takes 6 cycles, and two run at a time.
  template <int kRows, int kColumns, bool kAdds>
  static void multiply(const TileMatrix& a, const TileMatrix& b, std::int64_t steps, const TileMatrix& c) {
    for (int row = 0; row < 16 * kRows; row += kHeight)
      multiply_rows<kColumns, kAdds>({a.data + row / 16 * a.next + row % 16 * a.stride, a.stride, 0, a.step},
                                     b, steps,
                                     {c.data + row / 16 * c.step + row % 16 * c.stride, c.stride, c.next});
  }

 private:
  static constexpr int kHeight = 8;

  template <int kColumns, bool kAdds>
  static void multiply_rows(const TileMatrix& a, const TileMatrix& b, std::int64_t steps,
                            const TileMatrix& c) {
    Vf sums[kHeight][std::size_t{kColumns}];
#pragma GCC unroll 8
    for (int r = 0; r < kHeight; ++r)
#pragma GCC unroll 2
      for (int n = 0; n < kColumns; ++n)
        sums[r][n] = kAdds ? load(c.data + r * c.stride + n * c.next) : zero();
    for (std::int64_t step = 0; step < steps; ++step)
      for (int pair = 0; pair < 16; ++pair) {
        Vf columns[std::size_t{kColumns}];
#pragma GCC unroll 2
        for (int n = 0; n < kColumns; ++n)
          columns[n] = load(b.data + step * b.step + n * b.next + pair * b.stride);
#pragma GCC unroll 8
        for (int r = 0; r < kHeight; ++r) {
          const Vf element = splat(a.data[step * a.step + r * a.stride + pair]);
#pragma GCC unroll 2
          for (int n = 0; n < kColumns; ++n) sums[r][n] = dot_bf16(element, columns[n], sums[r][n]);
        }
      }
#pragma GCC unroll 8
    for (int r = 0; r < kHeight; ++r)
#pragma GCC unroll 2
      for (int n = 0; n < kColumns; ++n) store(c.data + r * c.stride + n * c.next, sums[r][n]);
  }
};

}  // namespace heed::detail::HEED_ISA
