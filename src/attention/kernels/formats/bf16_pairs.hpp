// Formats of bf16 pairs: the layouts of pack.hpp, with two elements in place of one float. Queries and keys
// pair neighbours along the depth; values pair keys that are kPairedKeys apart. Elements are copied, so
// nothing is rounded.
#pragma once

#include "attention/kernels/shared/pack.hpp"

namespace heed::detail::HEED_ISA {

/// Copies `n` bf16 elements, `stride` apart, and zeros up to `padded`.
inline void copy_bf16(const std::uint16_t* from, std::int64_t stride, std::int64_t n, std::uint16_t* to,
                      std::int64_t padded) {
  if (stride == 1) {
    __builtin_memcpy(to, from, static_cast<std::size_t>(n) * sizeof *to);
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i] = from[i * stride];
  }
  for (std::int64_t i = n; i < padded; ++i) to[i] = 0;
}

HEED_INLINE Vf add_squares(Vf pairs, Vf sum) {
  const Vf low = low_halves(pairs);
  const Vf high = high_halves(pairs);
  return mul_add(low, low, mul_add(high, high, sum));
}

/// Products take steps of `kStep` pairs; packed operands are padded with zeros to whole steps. Keys lie in
/// columns of `kKeyVectors` vectors, values in columns of `kValueColumns`. A row of values is paired with the
/// row `kPairedKeys` further on. Packing a row prefetches the row `kRowsAhead` further on; 0: no prefetch.
template <int kStep, int kKeyVectors, int kValueColumns, int kPairedKeys, int kRowsAhead>
struct Bf16Pairs {
  static constexpr int kElements = 2;           // per lane
  static constexpr int kLaneStep = kStep;       // an operand's lanes are a multiple of it
  static constexpr int kParts = 1;              // parts per element
  static constexpr int kWeightParts = 1;        // parts per weight
  static constexpr bool kScalesScores = true;   // queries and keys are packed unscaled
  static constexpr bool kRoundsWeights = true;  // to bf16, for the product with values

  /// Packs one query row, unscaled, to vectors that are `spacing` floats apart. Returns the scaled row's sum
  /// of squares.
  static float pack_query(const Operand& query, std::int64_t at, std::int64_t depth, float scale, float* to,
                          std::int64_t padded, std::int64_t spacing = kLanes) {
    const auto* from = static_cast<const std::uint16_t*>(query.data) + at;
    const std::int64_t stride = query.stride[3];
    Vf squares = zero();
    for (std::int64_t d = 0; d < 2 * padded; d += 2 * kLanes, to += spacing) {
      Vf pairs;
      if (stride == 1 && d + 2 * kLanes <= depth) {
        __builtin_memcpy(&pairs, from + d, sizeof pairs);
      } else {
        std::uint16_t some[2 * kLanes];
        copy_bf16(from + d * stride, stride, larger(0, smaller(2 * kLanes, depth - d)), some, 2 * kLanes);
        __builtin_memcpy(&pairs, some, sizeof pairs);
      }
      store(to, pairs);
      squares = add_squares(pairs, squares);
    }
    return reduce_add(squares) * scale * scale;
  }

  /// Packs keys to [column][pairs of depth][kKeyVectors * kLanes], in whole panels. `scratch` holds kLanes
  /// rows of `padded` floats.
  static Measure pack_keys(const RowBlock& keys, float /*scale*/, float* to, float* scratch,
                           std::int64_t padded, const RowPrefetch& /*ahead*/) {
    const auto [key, first, count, depth] = keys;
    const std::int64_t pairs = round_up((depth + 1) / 2, kStep);
    const auto* data = static_cast<const std::uint16_t*>(key.tensor.data);
    const std::int64_t stride = key.row_stride();
    // Whole rows of whole vectors need no copy.
    const bool is_whole = key.numbers == nullptr && key.element_stride() == 1 && depth % (2 * kLanes) == 0;
    const RowPrefetch ahead = {key, first + kRowsAhead, depth};
    Vf largest = zero();
    Vf total = zero();
    const std::int64_t rounded = round_up(count, kPanel);
    for (std::int64_t k = 0; k < rounded; k += kLanes) {
      float* column = to + k / kColumn * (pairs * kColumn) + k % kColumn;
      const std::int64_t valid = larger(0, smaller(kLanes, count - k));
      if constexpr (kRowsAhead > 0)
        for (std::int64_t r = k; r < k + kLanes; ++r) fetch_row(ahead, r);
      Vf squares;
      if (is_whole && valid == kLanes) {
        const std::uint16_t* rows = data + key.at(first + k);
        squares = transpose_keys(column, pairs, [&](std::int64_t r, std::int64_t d) {
          return load_pairs(rows + r * stride + 2 * d);
        });
      } else {
        for (std::int64_t r = 0; r < kLanes; ++r)
          copy_bf16(data + key.at(first + k + smaller(r, valid - 1)), key.element_stride(),
                    r < valid ? depth : 0, reinterpret_cast<std::uint16_t*>(scratch + r * padded),
                    2 * padded);
        squares = transpose_keys(
            column, pairs, [&](std::int64_t r, std::int64_t d) { return load(scratch + r * padded + d); });
      }
      largest = maximum(largest, squares);
      total = add(total, squares);
    }
    return {reduce_max(largest), reduce_add(total) < 0x1p120f};
  }

  /// Packs values to [column][pairs of keys][kValueColumns * kLanes]. The last column is only as wide as
  /// needed. A key without a partner is paired with zeros.
  static float pack_values(const RowBlock& values, float* to, const RowPrefetch& /*ahead*/) {
    const auto [value, first, count, width] = values;
    const std::int64_t vectors = (width + kLanes - 1) / kLanes;
    const std::int64_t pairs = round_up((count + 1) / 2, kStep);
    const std::int64_t stride = value.element_stride();
    const std::uint16_t* data = static_cast<const std::uint16_t*>(value.tensor.data);
    const bool is_whole = value.has_whole_vectors(width);
    const RowPrefetch rows_ahead = {value, first + kRowsAhead, width};
    for (std::int64_t p = 0; p < pairs; ++p) {
      const std::int64_t key = p / kPairedKeys * (2 * kPairedKeys) + p % kPairedKeys;
      const std::int64_t partner = key + kPairedKeys;
      if constexpr (kRowsAhead > 0)
        for (std::int64_t r = key; r <= partner; r += kPairedKeys) fetch_row(rows_ahead, r);
      if (is_whole && partner < count) {
        pack_pair(data + value.at(first + key), data + value.at(first + partner), vectors, to, pairs, p);
        continue;
      }
      for (std::int64_t vector = 0; vector < vectors; vector += kValueColumns) {
        const std::int64_t here = smaller(kValueColumns, vectors - vector);
        for (std::int64_t v = 0; v < here; ++v) {
          const std::int64_t column = (vector + v) * kLanes;
          const std::int64_t columns = smaller(kLanes, width - column);
          float* pair = to + (vector * pairs + p * here + v) * kLanes;
          if (key >= count) {
            store(pair, zero());
            continue;
          }
          const bool single = partner >= count;
          const std::uint16_t* low = data + value.at(first + key) + column * stride;
          const std::uint16_t* high = single ? low : data + value.at(first + partner) + column * stride;
          std::uint16_t rest[2][kLanes];
          if (stride != 1 || columns < kLanes || single) {
            copy_bf16(low, stride, columns, rest[0], kLanes);
            copy_bf16(high, stride, single ? 0 : columns, rest[1], kLanes);
            low = rest[0];
            high = rest[1];
          }
          store(pair, interleave_bf16(low, high));
        }
      }
    }
    return 1;
  }

 private:
  static constexpr std::int64_t kColumn = std::int64_t{kKeyVectors} * kLanes;

  HEED_INLINE static Vf load_pairs(const std::uint16_t* from) {
    Vf pairs;
    __builtin_memcpy(&pairs, from, sizeof pairs);
    return pairs;
  }

  /// Writes kLanes keys to `column`, a vector for each of their pairs. load(r, d) reads key r from pair d on.
  /// Returns the keys' sums of squares.
  template <class Load>
  HEED_INLINE static Vf transpose_keys(float* column, std::int64_t pairs, Load load) {
    constexpr int kChains = 4;  // of additions, which do not wait for each other
    Vf squares[kChains] = {zero(), zero(), zero(), zero()};
    for (std::int64_t d = 0; d < pairs; d += kLanes) {
      Vf block[kLanes];
#pragma GCC unroll 16
      for (int r = 0; r < kLanes; ++r) block[r] = load(r, d);
      transpose(block);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        if (kStep == kLanes || d + i < pairs) store(column + (d + i) * kColumn, block[i]);
        squares[i % kChains] = add_squares(block[i], squares[i % kChains]);
      }
    }
    return add(add(squares[0], squares[1]), add(squares[2], squares[3]));
  }

  /// Packs two rows whose elements are contiguous, as pair `p` of `pairs`.
  HEED_INLINE static void pack_pair(const std::uint16_t* low, const std::uint16_t* high, std::int64_t vectors,
                                    float* to, std::int64_t pairs, std::int64_t p) {
    for (std::int64_t vector = 0; vector < vectors; vector += kValueColumns) {
      const std::int64_t here = smaller(kValueColumns, vectors - vector);
      float* pair = to + (vector * pairs + p * here) * kLanes;
      for (std::int64_t v = 0; v < here; ++v, low += kLanes, high += kLanes)
        store(pair + v * kLanes, interleave_bf16(low, high));
    }
  }
};

/// Format for dot products of pairs in the lanes of vectors.
struct Bf16DotFormat : Bf16Pairs<1, kPanelVectors, kValueVectors, 1, 0> {
  static constexpr bool kMatrixTiles = false;
  // Products of pairs take 6 cycles. So 12 accumulators do not keep two units busy, but 18 do. Two such tiles
  // exceed the registers, so finished scores wait in memory.
  static constexpr std::int64_t kTallRows = 6;

  /// c + a_low * b_low + a_high * b_high, lane by lane.
  HEED_INLINE static Vf multiply_add(Vf a, Vf b, Vf c) { return dot_bf16(a, b, c); }
};

/// Format for matrix tiles, which multiply 16 pairs at a time. The tiles of an operand are contiguous, 1 KiB
/// each. From the second-level cache that is up to twice as fast as rows some hundred bytes apart.
struct Bf16TilesFormat : Bf16Pairs<16, 1, 1, 16, 32> {
  static constexpr bool kMatrixTiles = true;
  struct Elements {
    static constexpr int kCount = 1;
    static constexpr int kPartOfA[kCount] = {0};
    static constexpr int kPartOfB[kCount] = {0};
  };
  using WeightsByElements = Elements;
  using ElementsByWeights = Elements;
  static constexpr float kSmallestSquare = 0;  // 0: subnormal numbers count as 0, whatever else the row holds

  static void pair_rows(const RowBlock& rows, float* to) { pack_values(rows, to, RowPrefetch{}); }

  /// Converts a row's weights of 32 keys to an operand. Returns the sum of the stored values. Key k is paired
  /// with key k + 16, so no element changes its lane.
  HEED_INLINE static Vf split_weights(Vf a, Vf b, std::uint16_t* to, std::int64_t /*part*/) {
    const Vf pairs = pair_rounded(a, b);
    store(reinterpret_cast<float*>(to), pairs);
    return add(low_halves(pairs), high_halves(pairs));
  }
  /// Rounds both vectors; lane i of the pairs holds lane i of each.
  HEED_INLINE static void pair(Vf low, Vf high, Vf (&parts)[1]) { parts[0] = pair_rounded(low, high); }
};

}  // namespace heed::detail::HEED_ISA
