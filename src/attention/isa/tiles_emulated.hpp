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

/// A row of a tile. The compiler's vectors are fast at any level of optimisation, and under a sanitizer.
using TileRow = float __attribute__((vector_size(64)));
using TileWords = std::uint32_t __attribute__((vector_size(64)));
using TileDoubles = double __attribute__((vector_size(128)));

HEED_INLINE void flush(TileWords& x) { x &= TileWords((x & 0x7f800000u) != 0) | 0x80000000u; }
HEED_INLINE void flush(TileRow& x) {
  auto bits = TileWords(x);
  flush(bits);
  x = TileRow(bits);
}

/// An operand's elements: the first elements of all pairs, and the second ones.
struct TileElements {
  TileRow even[16], odd[16];
  bool moderate;  ///< all are 0, or in size from 2^-50 to 2^50

  explicit TileElements(const float (&pairs)[16][16]) {
    TileWords extreme = {};
    for (int row = 0; row < 16; ++row) {
      TileWords both;
      __builtin_memcpy(&both, pairs[row], sizeof both);
      set(even[row], both << 16, extreme);
      set(odd[row], both & 0xffff0000u, extreme);
    }
    std::uint32_t any = 0;
    for (int i = 0; i < 16; ++i) any |= extreme[i];
    moderate = any == 0;
  }

 private:
  HEED_INLINE static void set(TileRow& to, const TileWords& from, TileWords& extreme) {
    constexpr std::uint32_t least = (127 - 50) << 23, most = (127 + 50) << 23;  // bits of 2^-50 and 2^50
    TileWords bits = from;
    flush(bits);
    to = TileRow(bits);
    bits &= 0x7fffffffu;
    extreme |= TileWords(bits != 0) & (TileWords(bits < least) | TileWords(bits > most));
  }
};

/// The eight tiles of a thread.
struct TileRegisters {
  alignas(64) float tile[8][16][16];
};
static thread_local TileRegisters tile_registers;

class MatrixTiles {
 public:
  static constexpr bool kHasRegisters = true;

  MatrixTiles() {}
  /// See tiles_amx.hpp.
  class Lent {
   public:
    explicit Lent(bool lends) : lends_(lends) {
      if (lends_) tiles_ = tile_registers;
    }
    ~Lent() {
      if (lends_) tile_registers = tiles_;
    }
    Lent(const Lent&) = delete;
    Lent& operator=(const Lent&) = delete;

   private:
    bool lends_;
    TileRegisters tiles_;
  };
  MatrixTiles(const MatrixTiles&) = delete;
  MatrixTiles& operator=(const MatrixTiles&) = delete;

  template <int kTile>
  [[gnu::noinline]] static void clear() {
    __builtin_memset(tile_registers.tile[kTile], 0, sizeof tile_registers.tile[kTile]);
  }
  template <int kTile>
  [[gnu::noinline]] static void load(const float* from, std::int64_t stride) {
    for (int row = 0; row < 16; ++row)
      __builtin_memcpy(tile_registers.tile[kTile][row], from + row * stride, 64);
  }
  template <int kTile>
  [[gnu::noinline]] static void load_streamed(const float* from, std::int64_t stride) {
    load<kTile>(from, stride);
  }
  template <int kTile>
  [[gnu::noinline]] static void store(float* to, std::int64_t stride) {
    for (int row = 0; row < 16; ++row)
      __builtin_memcpy(to + row * stride, tile_registers.tile[kTile][row], 64);
  }
  template <int kC, int kA, int kB>
  [[gnu::noinline]] static void multiply_add() {
    const TileElements a(tile_registers.tile[kA]), b(tile_registers.tile[kB]);
    (a.moderate && b.moderate ? multiply_add<true> : multiply_add<false>)(tile_registers.tile[kC], a, b);
  }

 private:
  // a * b + sums, rounded once, for a and b from bf16. Products of moderate numbers are exact in f32, and
  // their sums are not subnormal, so only the sum is rounded. Other products are exact in f64; its 53 bits
  // are enough to round a sum of two 24-bit numbers twice without harm (Figueroa 1995).
  template <bool kModerate>
  HEED_INLINE static void add_products(TileRow& sums, float a, const TileRow& b) {
    if constexpr (kModerate) {
      sums += a * b;
    } else {
      const TileDoubles wide = static_cast<double>(a) * __builtin_convertvector(b, TileDoubles) +
                               __builtin_convertvector(sums, TileDoubles);
      sums = __builtin_convertvector(wide, TileRow);
      flush(sums);
    }
  }
  template <bool kModerate>
  static void multiply_add(float (&c)[16][16], const TileElements& a, const TileElements& b) {
    for (int m = 0; m < 16; ++m) {
      TileRow even = {}, odd = {}, sum;
      for (int k = 0; k < 16; ++k) {
        add_products<kModerate>(even, a.even[m][k], b.even[k]);
        add_products<kModerate>(odd, a.odd[m][k], b.odd[k]);
      }
      even += odd;
      flush(even);
      __builtin_memcpy(&sum, c[m], sizeof sum);
      flush(sum);
      sum += even;
      flush(sum);
      __builtin_memcpy(c[m], &sum, sizeof sum);
    }
  }
};

}  // namespace heed::detail::HEED_ISA
