// The f32 format: one element per lane. Queries are rows, keys are panels that carry the scale, and values
// are column panels.
#pragma once

#include "attention/kernels/shared/pack.hpp"

namespace heed::detail::HEED_ISA {

struct F32Format {
  static constexpr bool kMatrixTiles = false;
  static constexpr int kElements = 1;  // elements of the head dimension per lane
  static constexpr int kLaneStep = 1;
  static constexpr int kParts = 1;
  static constexpr int kWeightParts = 1;
  static constexpr std::int64_t kTallRows = kTileRows;  // rows of a score tile, if rows are whole groups
  static constexpr bool kScalesScores = false;          // the packed keys carry the scale
  static constexpr bool kRoundsWeights = false;         // weights stay f32 in the product with values

  /// a * b + c
  HEED_INLINE static Vf multiply_add(Vf a, Vf b, Vf c) { return mul_add(a, b, c); }

  static float pack_query(const Operand& query, std::int64_t at, std::int64_t depth, float /*scale*/,
                          float* to, std::int64_t padded) {
    return HEED_ISA::pack_query(query, at, depth, 1.0f, to, padded);
  }
  static Measure pack_keys(const RowBlock& keys, float scale, float* to, float* scratch, std::int64_t padded,
                           const RowPrefetch& ahead) {
    return HEED_ISA::pack_keys(keys, scale, to, scratch, padded, ahead);
  }
  static float pack_values(const RowBlock& values, float* to, const RowPrefetch& ahead) {
    HEED_ISA::pack_values(values, to, ahead);
    return 1;
  }
};

}  // namespace heed::detail::HEED_ISA
