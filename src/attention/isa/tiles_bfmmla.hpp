// Matrix tiles by Arm's BFMMLA (Arm Architecture Reference Manual, FEAT_BF16). It multiplies 2 rows by 4 by 2
// columns of bf16. Results stay in vectors of 2 x 2 while they are summed.
#pragma once

#include <arm_neon.h>

#include "attention/kernels/shared/tile_matrix.hpp"

#define HEED_MATRIX_TILES

namespace heed::detail::HEED_ISA {

inline constexpr bool kHasMatrixTiles = true;
inline constexpr bool kHasForward = true;
inline constexpr bool kEmulatesMatrixTiles = false;

struct MatrixTiles {
  static constexpr bool kHasRegisters = false;

  MatrixTiles() {}  // nothing to configure
  struct Lent {     // nor to keep
    explicit Lent(bool /*lends*/) {}
  };

  /// c [16 kRows][16 kColumns] = a x b, or c + a x b, over `steps` steps of 16 pairs. Eight rows and eight
  /// columns at a time occupy 16 of the 32 registers.
  template <int kRows, int kColumns, bool kAdds>
  static void multiply(const TileMatrix& a, const TileMatrix& b, std::int64_t steps, const TileMatrix& c) {
    for (int column = 0; column < 16 * kColumns; column += kSide)
      for (int row = 0; row < 16 * kRows; row += kSide)
        multiply_block<kAdds>(
            {a.data + row / 16 * a.next + row % 16 * a.stride, a.stride, 0, a.step},
            {b.data + column / 16 * b.next + column % 16, b.stride, 0, b.step}, steps,
            {c.data + row / 16 * c.step + row % 16 * c.stride + column / 16 * c.next + column % 16,
             c.stride});
  }

 private:
  static constexpr int kSide = 8;  // rows and columns of a block
  static constexpr int kHalf = kSide / 2;

  HEED_INLINE static bfloat16x8_t elements(float32x4_t pairs) { return vreinterpretq_bf16_f32(pairs); }

  /// Loads two pairs of each of two rows.
  HEED_INLINE static bfloat16x8_t two_rows(const float* row, std::int64_t stride) {
    return elements(vcombine_f32(vld1_f32(row), vld1_f32(row + stride)));
  }

  template <bool kAdds>
  static void multiply_block(const TileMatrix& a, const TileMatrix& b, std::int64_t steps,
                             const TileMatrix& c) {
    float32x4_t sums[kHalf][kHalf];  // rows 2 i and 2 i + 1, columns 2 j and 2 j + 1
#pragma GCC unroll 4
    for (int i = 0; i < kHalf; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < kHalf; ++j) {
        const float* at = c.data + 2 * i * c.stride + 2 * j;
        sums[i][j] = kAdds ? vcombine_f32(vld1_f32(at), vld1_f32(at + c.stride)) : vdupq_n_f32(0);
      }
    for (std::int64_t step = 0; step < steps; ++step)
      for (int pair = 0; pair < 16; pair += 2) {
        bfloat16x8_t rows[kHalf], columns[kHalf];
#pragma GCC unroll 4
        for (int i = 0; i < kHalf; ++i)
          rows[i] = two_rows(a.data + step * a.step + 2 * i * a.stride + pair, a.stride);
#pragma GCC unroll 2
        for (int j = 0; j < kHalf; j += 2) {  // four columns of two rows of pairs
          const float* at = b.data + step * b.step + pair * b.stride + 2 * j;
          const float32x4_t even = vld1q_f32(at), odd = vld1q_f32(at + b.stride);
          columns[j] = elements(vzip1q_f32(even, odd));
          columns[j + 1] = elements(vzip2q_f32(even, odd));
        }
#pragma GCC unroll 4
        for (int i = 0; i < kHalf; ++i)
#pragma GCC unroll 4
          for (int j = 0; j < kHalf; ++j) sums[i][j] = vbfmmlaq_f32(sums[i][j], rows[i], columns[j]);
      }
#pragma GCC unroll 4
    for (int i = 0; i < kHalf; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < kHalf; ++j) {
        float* at = c.data + 2 * i * c.stride + 2 * j;
        vst1_f32(at, vget_low_f32(sums[i][j]));
        vst1_f32(at + c.stride, vget_high_f32(sums[i][j]));
      }
  }
};

}  // namespace heed::detail::HEED_ISA
