// Matrix tiles in plain C++, bit for bit with the results of tiles_amx.hpp (TDPBF16PS in Intel's manual,
// volume 2). For each result, products of even and of odd elements are summed separately, each by fused
// multiply-adds starting from 0. The two sums are added, and then the tile that they are added to. All
// operations round to nearest; subnormal inputs count as 0, and subnormal results become 0.
#pragma once

#include <cstdint>

#define HEED_MATRIX_TILES

namespace heed::detail::HEED_ISA {

inline constexpr bool kHasMatrixTiles = true;
inline constexpr bool kHasForward = true;
inline constexpr bool kEmulatesMatrixTiles = true;

HEED_INLINE float flushed(float x) {
  const std::uint32_t bits = bits_of_float(x);
  return (bits & 0x7f800000u) == 0 ? float_of_bits(bits & 0x80000000u) : x;
}

// The sizes of tiles are constants, and all indices lie within them. AddressSanitizer need not check each product, which
// would take most of the time of tests under it.

/// An operand's elements: the first elements of all pairs, and the second ones.
struct TileElements {
  float even[16][16], odd[16][16];
  bool moderate = true;  ///< all are 0, or in size from 2^-50 to 2^50

  __attribute__((no_sanitize("address"))) explicit TileElements(const float (&pairs)[16][16]) {
    for (int row = 0; row < 16; ++row)
      for (int i = 0; i < 16; ++i) {
        even[row][i] = flushed(float_of_bits(bits_of_float(pairs[row][i]) << 16));
        odd[row][i] = flushed(float_of_bits(bits_of_float(pairs[row][i]) & 0xffff0000u));
        moderate = moderate && is_moderate(even[row][i]) && is_moderate(odd[row][i]);
      }
  }

 private:
  static bool is_moderate(float x) {
    const float magnitude = __builtin_fabsf(x);
    return magnitude == 0 || (magnitude >= 0x1p-50f && magnitude <= 0x1p50f);
  }
};

/// a * b + c, rounded once, for a and b from bf16. Their product is exact in f64. 53 bits are enough to round
/// a sum of two 24-bit numbers twice without harm (Figueroa 1995).
HEED_INLINE float fused_multiply_add(float a, float b, float c) {
  return flushed(
      static_cast<float>(static_cast<double>(a) * static_cast<double>(b) + static_cast<double>(c)));
}

/// The eight tiles of a thread.
struct TileRegisters {
  alignas(64) float tile[8][16][16];
};
static thread_local TileRegisters tile_registers;

class MatrixTiles {
 public:
  static constexpr bool kHasRegisters = true;

  MatrixTiles() {}
  MatrixTiles(const MatrixTiles&) = delete;
  MatrixTiles& operator=(const MatrixTiles&) = delete;

  template <int kTile>
  static void clear() {
    __builtin_memset(tile_registers.tile[kTile], 0, sizeof tile_registers.tile[kTile]);
  }
  template <int kTile>
  static void load(const float* from, std::int64_t stride) {
    for (int row = 0; row < 16; ++row)
      __builtin_memcpy(tile_registers.tile[kTile][row], from + row * stride, 64);
  }
  template <int kTile>
  static void store(float* to, std::int64_t stride) {
    for (int row = 0; row < 16; ++row)
      __builtin_memcpy(to + row * stride, tile_registers.tile[kTile][row], 64);
  }
  template <int kC, int kA, int kB>
  static void multiply_add() {
    const TileElements a(tile_registers.tile[kA]), b(tile_registers.tile[kB]);
    (a.moderate && b.moderate ? multiply_add<true> : multiply_add<false>)(tile_registers.tile[kC], a, b);
  }

 private:
  // Products of moderate numbers are exact in f32, and their sums are not subnormal. So only the sum is
  // rounded.
  template <bool kModerate>
  static HEED_INLINE void add_products(float (&sums)[16], float a, const float (&b)[16]) {
    for (int n = 0; n < 16; ++n)
      sums[n] = kModerate ? a * b[n] + sums[n] : fused_multiply_add(a, b[n], sums[n]);
  }
  template <bool kModerate>
  __attribute__((no_sanitize("address"))) static void multiply_add(float (&c)[16][16], const TileElements& a,
                                                                   const TileElements& b) {
    for (int m = 0; m < 16; ++m) {
      float even[16] = {}, odd[16] = {};
      for (int k = 0; k < 16; ++k) {
        add_products<kModerate>(even, a.even[m][k], b.even[k]);
        add_products<kModerate>(odd, a.odd[m][k], b.odd[k]);
      }
      for (int n = 0; n < 16; ++n) c[m][n] = flushed(flushed(c[m][n]) + flushed(even[n] + odd[n]));
    }
  }
};

}  // namespace heed::detail::HEED_ISA
