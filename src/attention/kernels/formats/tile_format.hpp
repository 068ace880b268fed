// Tile formats: what a target's inner products consist of. The forward pass is written once over a format,
// which defines
//
//   kElements        elements of the head dimension per lane
//   kLaneStep        operands are padded with zeros to a multiple of this many lanes
//   kParts           parts per element, each an operand of its own
//   kWeightParts     parts per weight
//   kMatrixTiles     whether matrix tiles compute the products (softmax/matrix_tiles.hpp)
//   kScalesScores    whether score tiles are multiplied by the scale (otherwise packed keys carry it)
//   kRoundsWeights   whether weights are rounded for the product with values
//   pack_query, pack_keys, pack_values   pack the operands. pack_values returns the factor for the values'
//                    products; 0 if the format cannot hold them
//
// and, if products are computed in lanes,
//
//   kTallRows        rows of a score tile, if rows are whole groups
//   multiply_add     the product of two lanes
//
// or, if matrix tiles compute them,
//
//   Elements, WeightsByElements, ElementsByWeights   the products of parts that form a product, in order
//   split_weights, pair             split vectors into parts of an operand: 32 keys of a row; two rows
//   pair_rows                       pack_values without a factor, for gradients
//   kSmallestSquare                 the squared norm from which on gradients by these parts are exact
#pragma once

#include "attention/kernels/formats/bf16_pairs.hpp"
#include "attention/kernels/formats/f32.hpp"
#include "attention/kernels/formats/parts_tiles.hpp"

namespace heed::detail::HEED_ISA {

template <class Format>
concept TileFormat = requires(const Operand& in, const RowBlock& rows, float* to, Measure measure) {
  {Format::kElements + Format::kLaneStep + Format::kParts + Format::kWeightParts};
  {Format::kScalesScores || Format::kRoundsWeights || Format::kMatrixTiles};
  {to[0] = Format::pack_query(in, 0, 0, 1.0f, to, 0)};
  {measure = Format::pack_keys(rows, 1.0f, to, to, 0, RowPrefetch{})};
  {to[0] = Format::pack_values(rows, to, RowPrefetch{})};
};
template <class Format>
concept LaneFormat = TileFormat<Format> && requires(Vf v) {
  {Format::kTallRows + 0};
  {v = Format::multiply_add(v, v, v)};
};
static_assert(LaneFormat<F32Format> && LaneFormat<Bf16DotFormat> && TileFormat<Bf16TilesFormat> &&
              TileFormat<PartsTilesFormat<DType::f32>> && TileFormat<PartsTilesFormat<DType::f16>>);

/// Lanes per part of an operand with `elements` elements.
template <TileFormat Format>
HEED_INLINE std::int64_t lanes_of(std::int64_t elements) {
  return round_up((elements + Format::kElements - 1) / Format::kElements, Format::kLaneStep);
}

template <bool kBf16Dot, bool kMatrixTiles>
struct FormatOf {
  using Format = F32Format;
};
template <>
struct FormatOf<true, false> {
  using Format = Bf16DotFormat;
};
template <bool kBf16Dot>
struct FormatOf<kBf16Dot, true> {
#if defined(HEED_PARTS_OF)
  using Format = PartsTilesFormat<DType::HEED_PARTS_OF>;
#else
  using Format = Bf16TilesFormat;
#endif
};
/// The unit's format. A bf16 unit has only this one; calls that it does not take go to the target's next
/// unit (isa/dispatch.cpp).
using UnitFormat = FormatOf<kHasBf16Dot, kHasMatrixTiles>::Format;
/// The tensor type that a unit of matrix tiles takes.
#if defined(HEED_PARTS_OF)
inline constexpr DType kMatrixType = DType::HEED_PARTS_OF;
#else
inline constexpr DType kMatrixType = DType::bf16;
#endif
inline constexpr bool kComputesEverything = !kHasBf16Dot && !kHasMatrixTiles;

}  // namespace heed::detail::HEED_ISA
