// What a target's inner products are made of. The forward pass is written once over a format, which says
//
//   kElements        how many elements of the head dimension a lane holds
//   kLaneStep        operands are filled up with zeros to a multiple of so many lanes
//   kParts           parts that an element is split into, each an operand of its own
//   kWeightParts     and those of a weight
//   kMatrixTiles     whether products are those of matrix tiles (kernel/matrix_tiles.hpp)
//   kScalesScores    whether score tiles are multiplied by the scale (otherwise packed keys carry it)
//   kRoundsWeights   whether weights are rounded for the product with values
//   pack_query, pack_keys, pack_values   how operands are packed. Of values, the factor that their products
//                    are multiplied by; 0 where the format does not hold them
//
// and, where products are those of lanes,
//
//   kTallRows        how many rows a score tile has where rows are whole groups
//   multiply_add     the product of two lanes
//
// or, where they are those of matrix tiles,
//
//   Elements, WeightsByElements, ElementsByWeights   products of parts that make up a product, in their order
//   split_weights, pair             how vectors become parts of an operand: 32 keys of a row; two rows
//   pair_rows                       pack_values without a factor, for gradients
//   kSmallestSquare                 of norms, from which on gradients by these parts are exact
#pragma once

#include "attention/cpu/formats/bf16_pairs.hpp"
#include "attention/cpu/formats/f32.hpp"
#include "attention/cpu/formats/parts_tiles.hpp"

namespace heed::detail::HEED_ISA {

template <class Format>
concept TileFormat = requires(const Input& in, const HeadRows& rows, float* to, Measure measure) {
  {Format::kElements + Format::kLaneStep + Format::kParts + Format::kWeightParts};
  {Format::kScalesScores || Format::kRoundsWeights || Format::kMatrixTiles};
  {to[0] = Format::pack_query(in, 0, 0, 1.0f, to, 0)};
  {measure = Format::pack_keys(rows, 0, 0, 0, 1.0f, to, to, 0, RowPrefetch{})};
  {to[0] = Format::pack_values(rows, 0, 0, 0, to, RowPrefetch{})};
};
template <class Format>
concept LaneFormat = TileFormat<Format> && requires(Vf v) {
  {Format::kTallRows + 0};
  {v = Format::multiply_add(v, v, v)};
};
static_assert(LaneFormat<F32Format> && LaneFormat<Bf16DotFormat> && TileFormat<Bf16TilesFormat> &&
              TileFormat<PartsTilesFormat<Type::f32>> && TileFormat<PartsTilesFormat<Type::f16>>);

/// Lanes that one part of an operand of `elements` elements takes.
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
  using Format = PartsTilesFormat<Type::HEED_PARTS_OF>;
#else
  using Format = Bf16TilesFormat;
#endif
};
/// The format that a unit multiplies in. One of bf16 has nothing else: what it does not serve is for the unit
/// that its target has besides (Kernels).
using UnitFormat = FormatOf<kHasBf16Dot, kHasMatrixTiles>::Format;
/// And the type of the tensors that a unit of matrix tiles takes.
#if defined(HEED_PARTS_OF)
inline constexpr Type kMatrixType = Type::HEED_PARTS_OF;
#else
inline constexpr Type kMatrixType = Type::bf16;
#endif
inline constexpr bool kComputesEverything = !kHasBf16Dot && !kHasMatrixTiles;

}  // namespace heed::detail::HEED_ISA
