// The f32 tiles format: f32 by matrix tiles of bf16. A float is the sum of three bf16 parts of 8 bits, high,
// middle and low: each is what the ones before leave, rounded. Of the nine products of two such sums six are
// taken, the small ones first; the others are below what f32 keeps:
//
//   low high, middle middle … : 2^-16 of the whole      middle high: 2^-8      high high: 1
//
// Elements are paired as in bf16_pairs.hpp, each part by itself.
//
// Tiles take subnormal parts for 0. Of scores, which need no more than an absolute error, that takes nothing.
// Values are multiplied by 2^80 first, unless some of the KV block are so large that sums would overflow;
// then none may be so small that its parts are subnormal. A number that rounds to infinity makes NaN of its
// row's output, as NaN and infinity do, and the row is computed again by the reference.
#pragma once

#include "attention/cpu/formats/bf16_pairs.hpp"

namespace heed::detail::HEED_ISA {

inline constexpr int kF32Parts = 3;

/// Writes the parts of a vector's floats to to[0], to[1], to[2], high to low.
HEED_INLINE void split_parts(Vf x, std::uint16_t* const (&to)[kF32Parts]) {
#pragma GCC unroll 3
  for (int part = 0; part < kF32Parts; ++part) x = sub(x, store_bf16(to[part], x));
}

struct F32TilesFormat {
  using Tiles = MatrixTiles;
  static constexpr bool kMatrixTiles = true;
  static constexpr int kElements = 2;
  static constexpr int kLaneStep = 16;
  static constexpr int kParts = kF32Parts;
  static constexpr bool kScalesScores = true;
  static constexpr bool kRoundsWeights = false;

  /// Products of a part of each operand, in their order.
  static constexpr int kProducts = 6;
  static constexpr int kPartOfA[kProducts] = {2, 1, 1, 0, 0, 0};
  static constexpr int kPartOfB[kProducts] = {0, 0, 1, 1, 2, 0};

  /// Weights of 32 keys of a row become an operand, whose parts are `part` elements apart: key k is paired
  /// with key k + 16. These parts are cut off, not rounded, which is cheaper: three hold all 24 bits.
  HEED_INLINE static Vf split_weights(Vf a, Vf b, std::uint16_t* to, std::int64_t part) {
#pragma GCC unroll 3
    for (int i = 0; i < kParts; ++i) {
      const Vf pairs = pair_high_halves(a, b);
      store(reinterpret_cast<float*>(to + i * part), pairs);
      a = sub(a, high_halves(a));
      b = sub(b, high_halves(b));
    }
    return zero();
  }
  /// The same parts of any two vectors; lane i of the pairs holds lane i of both.
  HEED_INLINE static void pair(Vf low, Vf high, Vf (&parts)[kParts]) {
#pragma GCC unroll 3
    for (int i = 0; i < kParts; ++i) {
      parts[i] = pair_high_halves(low, high);
      low = sub(low, high_halves(low));
      high = sub(high, high_halves(high));
    }
  }

  /// Splits `count` floats; those up to `padded`, a multiple of kLanes, are 0. Parts are `part` elements
  /// apart. Returns the sum of squares, lane by lane.
  static Vf split_row(const float* from, std::int64_t count, std::int64_t padded, std::uint16_t* to,
                      std::int64_t part) {
    Vf squares = zero();
    for (std::int64_t d = 0; d < padded; d += kLanes) {
      const Vf x = d + kLanes <= count ? load(from + d) : load_first(from + d, larger(0, count - d));
      split_parts(x, {to + d, to + part + d, to + 2 * part + d});
      squares = mul_add(x, x, squares);
    }
    return squares;
  }

  /// Packs one query row, unscaled, as [part][pairs]. Returns the sum of the squares that it has when scaled.
  static float pack_query(const Input& query, std::int64_t at, std::int64_t depth, float scale, float* to,
                          std::int64_t /*padded*/) {
    const std::int64_t pairs = round_up((depth + 1) / 2, kLaneStep);
    const auto* from = static_cast<const float*>(query.data) + at;
    auto* parts = reinterpret_cast<std::uint16_t*>(to);
    Vf squares = zero();
    if (query.stride[3] == 1) {
      squares = split_row(from, depth, 2 * pairs, parts, 2 * pairs);
    } else {
      for (std::int64_t d = 0; d < 2 * pairs; d += kLanes) {
        alignas(64) float row[kLanes];
        const std::int64_t count = larger(0, smaller(kLanes, depth - d));
        for (std::int64_t i = 0; i < count; ++i) row[i] = from[(d + i) * query.stride[3]];
        squares = add(squares, split_row(row, count, kLanes, parts + d, 2 * pairs));
      }
    }
    return reduce_add(squares) * scale * scale;
  }

  /// Keys to [key / kLanes][part][pairs of depth][kLanes], whole panels of them. `scratch` holds kLanes rows
  /// of `padded` floats.
  static Measure pack_keys(const HeadRows& key, std::int64_t first, std::int64_t count, std::int64_t depth,
                           float /*scale*/, float* to, float* scratch, std::int64_t padded,
                           const RowPrefetch& /*ahead*/) {
    const std::int64_t pairs = round_up((depth + 1) / 2, kLaneStep);
    float largest = 0;
    float total = 0;  // NaN and infinity survive a sum, not a maximum
    const std::int64_t rounded = round_up(count, kPanel);
    for (std::int64_t k = 0; k < rounded; k += kLanes) {
      for (std::int64_t r = 0; r < kLanes; ++r) {
        const bool exists = k + r < count;
        const float squares =
            exists ? pack_query(key.tensor, key.at(first + k + r), depth, 1.0f, scratch + r * padded, padded)
                   : 0;
        if (!exists) __builtin_memset(scratch + r * padded, 0, static_cast<std::size_t>(kParts * pairs) * 4);
        largest = squares > largest ? squares : largest;
        total += squares;
      }
      float* column = to + k * (kParts * pairs);
      for (std::int64_t d = 0; d < kParts * pairs; d += kLanes) {
        Vf block[kLanes];
#pragma GCC unroll 16
        for (int r = 0; r < kLanes; ++r) block[r] = load(scratch + r * padded + d);
        transpose(block);
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) store(column + (d + i) * kLanes, block[i]);
      }
    }
    return {largest, total < 0x1p120f};
  }

  /// Norms squared from which on the parts of a row of gradients, or of what they are summed from, are no
  /// subnormal numbers but for what does not count beside the others.
  static constexpr float kSmallestSquare = 0x1p-120f;

  static constexpr float kValueScale = 0x1p80f;
  static constexpr float kLargestScaled = 0x1p20f;       // values, times weights up to 2^18 and 192 keys
  static constexpr float kSmallestUnscaled = 0x1p-108f;  // whose low part is no subnormal number

  /// Values [column, column + kLanes) of a key; those beyond `width` are 0.
  HEED_INLINE static Vf load_values(const HeadRows& value, std::int64_t key, std::int64_t column,
                                    std::int64_t width) {
    const std::int64_t at = value.at(key) + column * value.element_stride();
    const std::int64_t columns = smaller(kLanes, width - column);
    const auto* from = static_cast<const float*>(value.tensor.data) + at;
    if (value.element_stride() == 1) return columns == kLanes ? load(from) : load_first(from, columns);
    alignas(64) float row[kLanes];
    read_row(value.tensor, at, value.element_stride(), columns, row);
    return load_first(row, columns);
  }

  /// What a KV block's values are multiplied by; 0 where some are large and others too small.
  static float value_scale(const HeadRows& value, std::int64_t first, std::int64_t count,
                           std::int64_t width) {
    Vf largest = zero();
    Vf smallest = splat(__builtin_inff());
    for (std::int64_t k = 0; k < count; ++k)
      for (std::int64_t c = 0; c < width; c += kLanes) {
        const Vf x = absolute(load_values(value, first + k, c, width));
        largest = maximum(largest, x);
        smallest = minimum(smallest, select(greater(x, zero()), x, splat(__builtin_inff())));
      }
    if (reduce_max(largest) < kLargestScaled) return kValueScale;
    return -reduce_max(sub(zero(), smallest)) >= kSmallestUnscaled ? 1.0f : 0.0f;
  }

  /// Rows times `scale`, a power of two, to [part][column / kLanes][pairs of rows][kLanes], the rows of a
  /// step of 32 paired as weights are; rows beyond `count` are zeros.
  static void pair_rows(const HeadRows& rows, std::int64_t first, std::int64_t count, std::int64_t width,
                        float* to, float scale = 1) {
    const std::int64_t vectors = (width + kLanes - 1) / kLanes;
    const std::int64_t pairs = round_up((count + 1) / 2, kLaneStep);
    const auto values = [&](std::int64_t k, std::int64_t vector) {
      return k < count ? mul(load_values(rows, first + k, vector * kLanes, width), splat(scale)) : zero();
    };
    for (std::int64_t p = 0; p < pairs; ++p) {
      const std::int64_t key = p / kLaneStep * (2 * kLaneStep) + p % kLaneStep;
      for (std::int64_t vector = 0; vector < vectors; ++vector) {
        Vf a = values(key, vector);
        Vf b = values(key + kLaneStep, vector);
#pragma GCC unroll 3
        for (int part = 0; part < kParts; ++part) {
          const Vf of_a = round_bf16(a);
          const Vf of_b = round_bf16(b);
          store(to + ((part * vectors + vector) * pairs + p) * kLanes, pair_high_halves(of_a, of_b));
          a = sub(a, of_a);
          b = sub(b, of_b);
        }
      }
    }
  }

  static float pack_values(const HeadRows& value, std::int64_t first, std::int64_t count, std::int64_t width,
                           float* to, const RowPrefetch& /*ahead*/) {
    const float scale = value_scale(value, first, count, width);
    pair_rows(value, first, count, width, to, scale);
    return scale == 0 ? 0 : 1 / scale;
  }
};

}  // namespace heed::detail::HEED_ISA
