// For units without matrix tiles; kHasMatrixTiles is false.
#pragma once

namespace heed::detail::HEED_ISA {

inline constexpr bool kHasMatrixTiles = false;
inline constexpr bool kHasForward = true;
inline constexpr bool kEmulatesMatrixTiles = false;

/// Nothing to configure.
struct MatrixTiles {
  static constexpr bool kHasRegisters = false;

  MatrixTiles() {}
  struct Lent {
    explicit Lent(bool /*lends*/) {}
  };
};

}  // namespace heed::detail::HEED_ISA
