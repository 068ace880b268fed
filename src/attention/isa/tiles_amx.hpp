// Matrix tiles by Intel's Advanced Matrix Extensions (Intel 64 and IA-32 Architectures Software Developer's
// Manual, volume 1, chapter 18): eight registers of 16 rows of 64 bytes.
#pragma once

#include <cstdint>

#include "attention/kernels/shared/constant.hpp"

#define HEED_MATRIX_TILES

namespace heed::detail::HEED_ISA {

inline constexpr bool kHasMatrixTiles = true;
inline constexpr bool kHasForward = true;
inline constexpr bool kEmulatesMatrixTiles = false;

/// While it exists, all tiles of this thread have 16 x 64 bytes. Destroying it resets the tiles, so the
/// system need not save them when it switches threads.
class MatrixTiles {
 public:
  static constexpr bool kHasRegisters = true;

  MatrixTiles() {
    struct alignas(64) Configuration {
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
      std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    };
    static constexpr Configuration kAll = {};
    asm volatile("ldtilecfg %0" ::"m"(kAll));
  }
  ~MatrixTiles() { asm volatile("tilerelease" ::); }
  /// While it exists, others may use the tiles of this thread, or reset them. Code of callers may do so.
  class Lent {
   public:
    explicit Lent(bool lends) {
      if (!lends) return;
      asm volatile("sttilecfg %0" : "=m"(configuration_));
      if (configuration_[0] == 0) return;  // no tiles are in use
      lends_ = true;
      for_each_constant<8>([&](auto tile) { store<decltype(tile)::value>(tiles_[tile.value], 16); });
    }
    ~Lent() {
      if (!lends_) return;
      asm volatile("ldtilecfg %0" ::"m"(configuration_));
      for_each_constant<8>([&](auto tile) { load<decltype(tile)::value>(tiles_[tile.value], 16); });
    }
    Lent(const Lent&) = delete;
    Lent& operator=(const Lent&) = delete;

   private:
    bool lends_ = false;
    alignas(64) std::uint8_t configuration_[64];
    alignas(64) float tiles_[8][256];
  };
  MatrixTiles(const MatrixTiles&) = delete;
  MatrixTiles& operator=(const MatrixTiles&) = delete;

  template <int kTile>
  HEED_INLINE static void clear() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  /// Loads 16 rows of 16 floats, or of 16 pairs of bf16; rows are `stride` floats apart.
  template <int kTile>
  HEED_INLINE static void load(const float* from, std::int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(4 * stride), "i"(kTile) : "memory");
  }
  /// The same for a tile that is not loaded again soon. It takes no room in the first-level cache.
  template <int kTile>
  HEED_INLINE static void load_streamed(const float* from, std::int64_t stride) {
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(4 * stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  HEED_INLINE static void store(float* to, std::int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(4 * stride), "i"(kTile) : "memory");
  }
  /// c [16][16] += a [16][32] x b [32][16], in bf16. b's rows are paired: lane n of row p holds b[2p][n] and
  /// b[2p + 1][n].
  template <int kC, int kA, int kB>
  HEED_INLINE static void multiply_add() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
  }
};

}  // namespace heed::detail::HEED_ISA
