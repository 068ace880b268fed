// The parts tiles format: f32 and f16 by matrix tiles of bf16. An f32 number is split into a sum of three
// bf16 parts of 8 bits: high, middle and low. Each part is the rest after the parts before it, rounded
// (pair() cuts off instead). An f16 number is split into two. The product of two such sums consists of the
// partial products below; smaller ones are beyond f32's precision and are omitted.
//
//   low high, middle middle … : 2^-16 of the whole      middle high: 2^-8      high high: 1
//
// Elements are paired as in bf16_pairs.hpp, each part by itself. Weights and score gradients always have
// three parts.
//
// Tiles treat subnormal parts as 0. Scores only need a small absolute error, so they lose nothing. f32 values
// are multiplied by 2^80 first. If the values of a KV block are too large to scale, they stay unscaled. If
// one of them also has a subnormal part, all rows that may see the block are left out. f16 values have no
// subnormal parts. A number that rounds to infinity makes its row's output NaN, as NaN and infinity do; the
// reference then recomputes the row.
#pragma once

#include "attention/kernels/formats/bf16_pairs.hpp"

namespace heed::detail::HEED_ISA {

/// Products of parts, in order: elements by elements, weights by elements, and elements by weights. The
/// largest product comes last, and each shares a part with the product before, which is loaded already.
template <DType kType>
struct PartProducts {
  struct Elements {
    static constexpr int kCount = 6;
    static constexpr int kPartOfA[kCount] = {2, 1, 1, 0, 0, 0};
    static constexpr int kPartOfB[kCount] = {0, 0, 1, 1, 2, 0};
  };
  using WeightsByElements = Elements;
  using ElementsByWeights = Elements;
};
template <>
struct PartProducts<DType::f16> {
  struct Elements {
    static constexpr int kCount = 4;
    static constexpr int kPartOfA[kCount] = {1, 1, 0, 0};
    static constexpr int kPartOfB[kCount] = {0, 1, 1, 0};
  };
  struct WeightsByElements {
    static constexpr int kCount = 5;
    static constexpr int kPartOfA[kCount] = {2, 1, 1, 0, 0};
    static constexpr int kPartOfB[kCount] = {0, 0, 1, 1, 0};
  };
  struct ElementsByWeights {
    static constexpr int kCount = 5;
    static constexpr int kPartOfA[kCount] = {0, 0, 1, 1, 0};
    static constexpr int kPartOfB[kCount] = {2, 1, 1, 0, 0};
  };
};

/// kType is the tensors' type, f32 or f16.
template <DType kType>
struct PartsTilesFormat : PartProducts<kType> {
  static constexpr bool kMatrixTiles = true;
  static constexpr int kElements = 2;
  static constexpr int kLaneStep = 16;
  static constexpr int kParts = kType == DType::f32 ? 3 : 2;
  static constexpr int kWeightParts = 3;
  static constexpr bool kScalesScores = true;
  static constexpr bool kRoundsWeights = false;

  /// Splits two vectors into their first kCount parts; lane i of the pairs holds lane i of each. Parts are
  /// cut off instead of rounded, which is cheaper. Three hold all 24 bits of an f32 number, two the 11 bits
  /// of f16.
  template <std::size_t kCount>
  HEED_INLINE static void pair(Vf low, Vf high, Vf (&parts)[kCount]) {
#pragma GCC unroll 3
    for (std::size_t i = 0; i < kCount; ++i) {
      parts[i] = pair_high_halves(low, high);
      low = sub(low, high_halves(low));
      high = sub(high, high_halves(high));
    }
  }
  /// Converts a row's weights of 32 keys to an operand whose parts are `part` elements apart. Key k is paired
  /// with key k + 16.
  HEED_INLINE static Vf split_weights(Vf a, Vf b, std::uint16_t* to, std::int64_t part) {
    Vf parts[kWeightParts];
    pair(a, b, parts);
#pragma GCC unroll 3
    for (int i = 0; i < kWeightParts; ++i) store(reinterpret_cast<float*>(to + i * part), parts[i]);
    return zero();
  }

  /// Splits two vectors into rounded parts, `part` floats apart. Lane i of the pairs holds lane i of each.
  HEED_INLINE static void store_parts(float* to, std::int64_t part, Vf low, Vf high) {
#pragma GCC unroll 3
    for (int i = 0; i < kParts; ++i) {
      const Vf of_low = round_bf16(low);
      const Vf of_high = round_bf16(high);
      store(to + i * part, pair_high_halves(of_low, of_high));
      low = sub(low, of_low);
      high = sub(high, of_high);
    }
  }

  /// Loads `count` elements, at most kLanes, `stride` apart; the other lanes are 0.
  HEED_INLINE static Vf load_elements(const Operand& from, std::int64_t at, std::int64_t stride,
                                      std::int64_t count) {
    if (stride == 1 && kType == DType::f32) {
      const float* floats = static_cast<const float*>(from.data) + at;
      return count >= kLanes ? load(floats) : load_first(floats, larger(0, count));
    }
    if (stride == 1 && count >= kLanes) return load_f16(static_cast<const std::uint16_t*>(from.data) + at);
    alignas(64) float row[kLanes];
    read_row(from, at, stride, larger(0, count), row);
    return load_first(row, larger(0, count));
  }

  /// Packs one query row, unscaled, as [part][pairs], to vectors that are `spacing` floats apart. Returns the
  /// scaled row's sum of squares.
  static float pack_query(const Operand& query, std::int64_t at, std::int64_t depth, float scale, float* to,
                          std::int64_t /*padded*/, std::int64_t spacing = kLanes) {
    const std::int64_t vectors = round_up((depth + 1) / 2, kLaneStep) / kLanes;
    const std::int64_t stride = query.stride[3];
    Vf squares = zero();
    for (std::int64_t vector = 0; vector < vectors; ++vector)
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const std::int64_t d = (2 * vector + half) * kLanes;
        Vf x = load_elements(query, at + d * stride, stride, smaller(kLanes, depth - d));
        squares = mul_add(x, x, squares);
#pragma GCC unroll 3
        for (int part = 0; part < kParts; ++part) {
          auto* halves = reinterpret_cast<std::uint16_t*>(to + (part * vectors + vector) * spacing);
          x = sub(x, store_bf16(halves + half * kLanes, x));
        }
      }
    return reduce_add(squares) * scale * scale;
  }

  /// Packs keys to [key / kLanes][part][pairs of depth][kLanes], in whole panels.
  static Measure pack_keys(const RowBlock& keys, float /*scale*/, float* to, float* /*scratch*/,
                           std::int64_t /*padded*/, const RowPrefetch& /*ahead*/) {
    const auto [key, first, count, depth] = keys;
    const std::int64_t pairs = round_up((depth + 1) / 2, kLaneStep);
    const std::int64_t stride = key.element_stride();
    Vf largest = zero();
    Vf total = zero();  // a sum keeps NaN and infinity, a maximum does not
    const std::int64_t rounded = round_up(count, kPanel);
    for (std::int64_t k = 0; k < rounded; k += kLanes) {
      float* column = to + k * (kParts * pairs);
      Vf squares[2] = {zero(), zero()};
      for (std::int64_t d = 0; d < 2 * pairs; d += kLanes) {
        Vf block[kLanes];
#pragma GCC unroll 16
        for (int r = 0; r < kLanes; ++r)
          block[r] = k + r < count ? load_elements(key.tensor, key.at(first + k + r) + d * stride, stride,
                                                   smaller(kLanes, depth - d))
                                   : zero();
        transpose(block);
#pragma GCC unroll 8
        for (int i = 0; i < kLanes; i += 2) {
          squares[0] = mul_add(block[i], block[i], squares[0]);
          squares[1] = mul_add(block[i + 1], block[i + 1], squares[1]);
          store_parts(column + (d + i) / 2 * kLanes, pairs * kLanes, block[i], block[i + 1]);
        }
      }
      const Vf sum = add(squares[0], squares[1]);
      largest = maximum(largest, sum);
      total = add(total, sum);
    }
    return {reduce_max(largest), reduce_add(total) < 0x1p120f};
  }

  /// From this squared norm on, a row's parts are not subnormal, except for parts too small to matter beside
  /// the others. It applies to rows that gradients are summed from.
  static constexpr float kSmallestSquare = kType == DType::f32 ? 0x1p-120f : 0;

  static constexpr float kValueScale = 0x1p80f;
  static constexpr float kMaxScaled = 0x1p20f;           // for weights up to 2^18 and 192 keys
  static constexpr float kSmallestUnscaled = 0x1p-108f;  // its low part is not subnormal

  /// Loads values [column, column + kLanes) of a block's row; values beyond the width are 0.
  HEED_INLINE static Vf load_values(const RowBlock& values, std::int64_t row, std::int64_t column) {
    const HeadRows& value = values.rows;
    return load_elements(value.tensor, value.at(values.first + row) + column * value.element_stride(),
                         value.element_stride(), smaller(kLanes, values.width - column));
  }

  /// Returns the factor for a KV block's values; 0 if some are too large and others too small.
  static float value_scale(const RowBlock& values) {
    if (kType == DType::f16) return 1;
    Vf largest = zero();
    Vf smallest = splat(__builtin_inff());
    for (std::int64_t k = 0; k < values.count; ++k)
      for (std::int64_t c = 0; c < values.width; c += kLanes) {
        const Vf x = absolute(load_values(values, k, c));
        largest = maximum(largest, x);
        smallest = minimum(smallest, select(greater(x, zero()), x, splat(__builtin_inff())));
      }
    if (reduce_max(largest) < kMaxScaled) return kValueScale;
    return -reduce_max(sub(zero(), smallest)) >= kSmallestUnscaled ? 1.0f : 0.0f;
  }

  /// Packs rows times `scale`, a power of two, to [part][column / kLanes][pairs of rows][kLanes]. The rows of
  /// a step of 32 are paired like weights; rows beyond the last one are zeros.
  static void pair_rows(const RowBlock& rows, float* to, float scale = 1) {
    const std::int64_t vectors = (rows.width + kLanes - 1) / kLanes;
    const std::int64_t pairs = round_up((rows.count + 1) / 2, kLaneStep);
    const auto values = [&](std::int64_t k, std::int64_t vector) {
      return k < rows.count ? mul(load_values(rows, k, vector * kLanes), splat(scale)) : zero();
    };
    for (std::int64_t p = 0; p < pairs; ++p) {
      const std::int64_t key = p / kLaneStep * (2 * kLaneStep) + p % kLaneStep;
      for (std::int64_t vector = 0; vector < vectors; ++vector) {
        store_parts(to + (vector * pairs + p) * kLanes, vectors * pairs * kLanes, values(key, vector),
                    values(key + kLaneStep, vector));
      }
    }
  }

  static float pack_values(const RowBlock& values, float* to, const RowPrefetch& /*ahead*/) {
    const float scale = value_scale(values);
    pair_rows(values, to, scale);
    return scale == 0 ? 0 : 1 / scale;
  }
};

}  // namespace heed::detail::HEED_ISA
