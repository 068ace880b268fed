// Products of a cache's int4 codes as they lie with queries and weights that are written in digits. A number
// t is rounded to u (d0 + 2^8 d1 + 2^16 d2). The unit u is chosen so that the row's largest number fills
// three digits of eight bits. Dot products of bytes then sum digits times codes as integers. So a sum is
// exact, and the rounding of t is its only error: at most 2^-23 of the row's largest number.
//
// For keys, the numbers are queries times the scales of a group of keys; for values, weights times the scales
// of values. Codes count from their middle, 7.5, so that the offset o + 7.5 s is small beside the numbers
// that it stands for.
#pragma once

#include "attention/kernels/decode/decode_rows.hpp"
#include "attention/kernels/decode/pass_prefetch.hpp"
#include "attention/kernels/softmax/plan_tiling.hpp"

namespace heed::detail::HEED_ISA {

inline constexpr std::int64_t kDigitValues = 96;  // values that share a unit
inline constexpr std::int64_t kQuad = 4;
inline constexpr std::int64_t kVectorBytes = 64;
// The largest numbers in units, with room for rounding. Signed digits are from -128 to 127, the highest from
// -64 to 63. Adding 128, 128 and 64 to them gives digits without a sign.
inline constexpr float kLargestSigned = 0x3f7f00, kLargestUnsigned = 0x7fff00;
inline constexpr int kSignedBias = 0x408080;

/// Factor and unit of a row's digits. Numbers that are too small or not finite have no digits.
struct DigitUnit {
  float factor = 0, unit = 0;
  bool fits = true;
};
HEED_INLINE DigitUnit digit_unit(float largest, float most) {
  if (largest == 0) return {};
  if (!(largest > 0x1p-90f && largest < 0x1p120f)) return {0, 0, false};
  return {most / largest, largest / most, true};
}

/// t factor + bias, rounded to a whole number, whose digits are the lowest three bytes.
HEED_INLINE Quads digits_of(Vf t, Vf factor, float bias) {
  return bits_of_floats(mul_add(t, factor, splat(0x1p23f + bias)));
}
HEED_INLINE Vf number_of(Quads d0, Quads d1, Quads d2) {
  return mul_add(floats_of(d2), splat(0x1p16f), mul_add(floats_of(d1), splat(0x1p8f), floats_of(d0)));
}

/// Writes `whole` addresses: of the rows [first, first + count), and of the last row in the places left.
inline void find_rows(const HeadRows& rows, std::int64_t first, std::int64_t count, std::int64_t whole,
                      const std::uint8_t** from) {
  const auto* start = reinterpret_cast<const std::uint8_t*>(rows.start);
  for (std::int64_t k = 0; k < count; ++k)
    from[k] = start + (rows.numbers != nullptr ? rows.numbers[first + k] : first + k) * rows.row_bytes;
  for (std::int64_t k = count; k < whole; ++k) from[k] = from[count - 1];
}

// ---- keys

/// The digits of a task's queries times the scales of a group of keys.
struct KeyDigits {
  /// [rows][1 + depth / 16][3 digits and a gap][16 channels]. A vector has the even or the odd channels of
  /// 32. The first vector has the sums that turn products with 2 c into products with 2 c - 15.
  std::uint8_t* digits;
  std::int64_t stride;  // of a row, in bytes
  DigitUnit unit[kGroupRows] = {};
  float offset[kGroupRows] = {};
};

inline KeyDigits key_digits(const TaskState& state) {
  KeyDigits keys;
  keys.digits = reinterpret_cast<std::uint8_t*>(state.w.cached);
  keys.stride = kVectorBytes + kQuad * state.w.depth;
  return keys;
}

/// Writes the digits of one row.
HEED_BYTE_DOTS inline void write_key_digits(const float* query, const std::uint16_t* scale,
                                            std::int64_t depth, float factor, std::uint8_t* to) {
  Quads sums = zero_quads();
  for (std::int64_t d = 0; d < depth; d += kCodeChannels) {
    Vf t[2] = {mul(load(query + d), load_bf16(scale + d)),
               mul(load(query + d + kLanes), load_bf16(scale + d + kLanes))};
    split_pairs(Vf(t[0]), Vf(t[1]), t[0], t[1]);
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      const Quads x = sub_bytes(digits_of(t[v], splat(factor), kSignedBias), splat_whole(kSignedBias));
      const Quads digits = transpose_lanes(bytes_of_words(x));
      store_quads(to + kVectorBytes + kQuad * (d + v * kLanes), digits);
      sums = dot_bytes(splat_byte(1), digits, sums);
    }
  }
  store_quads(to, times_whole(sums, -15));
}

/// Writes queries times the scales of the group of key `first`. If they have no digits, the scores are NaN,
/// unless the numbers are too small to change a score.
inline void fold_queries(const TaskState& state, const CodedRows& coded, std::int64_t first,
                         KeyDigits& keys) {
  const RowCodes& codes = coded.cache.codes;
  const std::int64_t depth = state.w.depth;
  const std::int64_t at = coded.key_scales(coded.position(first));
  const float magnitude = 15 * static_cast<float>(depth) * __builtin_fabsf(state.call.log2_scale);
  for (std::int64_t r = 0; r < state.rows; ++r) {
    const float* query = state.queries.data + r * state.queries.stride;
    Vf most = zero(), offset = zero();
    for (std::int64_t d = 0; d < depth; d += kLanes) {
      const Vf q = load(query + d), scale = load_bf16(codes.key_scale + at + d);
      most = larger_magnitude(most, mul(q, scale));
      offset = mul_add(q, mul_add(scale, splat(7.5f), load_bf16(codes.key_offset + at + d)), offset);
    }
    const float largest = largest_magnitude(most);
    DigitUnit& unit = keys.unit[r];
    unit = digit_unit(largest, kLargestSigned);
    write_key_digits(query, codes.key_scale + at, depth, unit.factor, keys.digits + r * keys.stride);
    unit.unit /= 2;
    const bool changes_no_score = largest * magnitude < 0x1p-40f;
    keys.offset[r] = unit.fits || changes_no_score ? reduce_add(offset) : __builtin_nanf("");
  }
}

/// Prefetches the scales of the group of key `next`, if there is one.
inline void fetch_key_scales(const TaskState& state, const CodedRows& coded, std::int64_t next) {
  if (next >= coded.rows.count || coded.position(next) >= coded.sequence.coded) return;
  const RowCodes& codes = coded.cache.codes;
  const std::int64_t at = coded.key_scales(coded.position(next));
  for (std::int64_t d = 0; d < state.w.depth; d += kCodeChannels) {
    __builtin_prefetch(codes.key_scale + at + d, 0, 2);
    __builtin_prefetch(codes.key_offset + at + d, 0, 2);
  }
}

/// Products of kRows rows with sixteen keys, in units.
template <int kRows>
HEED_BYTE_DOTS void multiply_keys(const std::uint8_t* const (&from)[kLanes], std::int64_t depth,
                                  const std::uint8_t* digits, std::int64_t stride,
                                  Vf (&products)[std::size_t{kRows}]) {
  constexpr int kHalf = 2;  // vectors of four keys at a time
  Vf number[std::size_t{kRows}][4];
  for (int half = 0; half < 2; ++half) {
    Quads sums[std::size_t{kRows}][3][kHalf];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 3
      for (int d = 0; d < 3; ++d)
#pragma GCC unroll 2
        for (int v = 0; v < kHalf; ++v) sums[r][d][v] = splat_four_quads(digits + r * stride + d * kLanes);
    const std::uint8_t* at = digits + kVectorBytes;
    for (std::int64_t byte = 0; byte < depth / 2; byte += kLanes) {
      Quads codes[kHalf];
#pragma GCC unroll 2
      for (int v = 0; v < kHalf; ++v) codes[v] = four_rows(from + 4 * (kHalf * half + v), byte);
#pragma GCC unroll 2
      for (int part = 0; part < 2; ++part, at += kVectorBytes) {
        Quads numbers[kHalf];
#pragma GCC unroll 2
        for (int v = 0; v < kHalf; ++v)
          numbers[v] = part == 0 ? doubled_low_halves(codes[v]) : doubled_high_halves(codes[v]);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 3
          for (int d = 0; d < 3; ++d) {
            const Quads digit = splat_four_quads(at + r * stride + d * kLanes);
#pragma GCC unroll 2
            for (int v = 0; v < kHalf; ++v) sums[r][d][v] = dot_bytes(numbers[v], digit, sums[r][d][v]);
          }
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < kHalf; ++v)
        number[r][kHalf * half + v] = number_of(sums[r][0][v], sums[r][1][v], sums[r][2][v]);
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) products[r] = transpose_lanes(sum_quarters_of_each(number[r]));
}

/// The scores of a KV block, panel by panel.
struct BlockScores {
  alignas(64) float panels[kKvBlock / kPanel][kGroupRows][kPanel];
  bool in_range[kGroupRows / kTileRows];

  float* row(std::int64_t r, std::int64_t key) { return panels[key / kPanel][r] + key % kPanel; }
};

/// Scores of kRows rows from `row` on for up to sixteen keys, the first of which is key `at` of the KV block.
template <int kRows>
void score_sixteen(const TaskState& state, const KeyDigits& keys, const std::uint8_t* const (&from)[kLanes],
                   std::int64_t row, const KeyRange& range, BlockScores& scores) {
  Vf products[std::size_t{kRows}];
  multiply_keys<kRows>(from, state.w.depth, keys.digits + row * keys.stride, keys.stride, products);
  constexpr auto kAll = static_cast<std::uint32_t>((std::uint64_t{1} << kLanes) - 1);
  for (int r = 0; r < kRows && row + r < state.rows; ++r) {
    const Vf product = mul_add(products[r], splat(keys.unit[row + r].unit), splat(keys.offset[row + r]));
    const Vf score = mul(product, splat(state.call.log2_scale));
    scores.in_range[row / kTileRows] &= bits_of(greater_equal(splat(kMaxScore), absolute(score))) == kAll;
    if (range.begin % kLanes == 0) {
      store_first(scores.row(row + r, range.begin), range.end - range.begin, score);
      continue;
    }
    alignas(64) float lane[kLanes];
    store(lane, score);
    for (std::int64_t key = range.begin; key < range.end; ++key)
      *scores.row(row + r, key) = lane[key - range.begin];
  }
}

/// Scores of all rows for the coded keys `range` of a KV block, whose key 0 is key `key` of the segment.
inline void score_coded_keys(const TaskState& state, std::int64_t key, const KeyRange& range,
                             BlockScores& scores, PassPrefetch& prefetch) {
  const CodedRows coded = coded_rows_of(state, true);
  KeyDigits keys = key_digits(state);
  for (std::int64_t begin = range.begin, end = begin; begin < range.end; begin = end) {
    end = begin + keys_of_group(coded, key + begin, key + range.end);
    fetch_key_scales(state, coded, key + end);
    fold_queries(state, coded, key + begin, keys);
    for (std::int64_t at = begin; at < end; at += kLanes) {
      const std::uint8_t* from[kLanes];
      const std::int64_t count = smaller(kLanes, end - at);
      find_rows(state.kv.keys, key + at, count, kLanes, from);
      for (std::int64_t k = 0; k < count; ++k) prefetch.fetch();
      for (std::int64_t row = 0; row < state.rows; row += kTileRows) {
        const std::int64_t rows = state.rows - row;
        const auto score = rows == 1   ? score_sixteen<1>
                           : rows == 2 ? score_sixteen<2>
                                       : score_sixteen<kTileRows>;
        score(state, keys, from, row, {at, at + count}, scores);
      }
    }
  }
}

// ---- values

/// Weights of a tile of rows times the scales of up to kDigitValues values, in digits.
struct ValueDigits {
  static constexpr std::int64_t kGroups = 4;  // that share a vector with four values
  static constexpr std::int64_t kQuads = kDigitValues / kQuad;
  std::int64_t fours;             // of groups
  std::uint16_t *scale, *offset;  // [fours][kDigitValues][kGroups]
  float* numbers;                 // [kDigitValues][kGroups]
  std::uint8_t* digits;           // [kTileRows][kQuads][fours][kGroups][3 digits and a gap][4 values]
  float *unit, *offset_sum;       // [kTileRows][fours * kGroups]
};

inline ValueDigits value_digits(const TaskState& state) {
  Memory memory(state.w.cached);
  ValueDigits values;
  const std::int64_t groups =
      (state.call.value_dim + state.kv.codes->codes.value_group - 1) / state.kv.codes->codes.value_group;
  values.fours = (groups + ValueDigits::kGroups - 1) / ValueDigits::kGroups;
  const std::int64_t scales = values.fours * kDigitValues * ValueDigits::kGroups;
  values.scale = memory.take<std::uint16_t>(scales);
  values.offset = memory.take<std::uint16_t>(scales);
  values.numbers = memory.floats(kDigitValues * ValueDigits::kGroups);
  values.digits = memory.take<std::uint8_t>(kTileRows * ValueDigits::kQuads * values.fours * kVectorBytes);
  values.unit = memory.floats(kTileRows * values.fours * ValueDigits::kGroups);
  values.offset_sum = memory.floats(kTileRows * values.fours * ValueDigits::kGroups);
  return values;
}

/// Collects one number per group of values [first, first + count), four groups side by side; the rest is 0.
inline void gather_scales(const CodedRows& coded, std::int64_t first, std::int64_t count, std::int64_t groups,
                          const std::uint16_t* scales, std::uint16_t* to) {
  constexpr std::int64_t kGroups = ValueDigits::kGroups;
  const bool together =
      groups == kGroups && coded.cache.codes.value_row_stride == groups && coded.rows.is_even(first, count);
  for (std::int64_t four = 0; four < groups; four += kGroups, to += kDigitValues * kGroups) {
    const auto bytes = static_cast<std::size_t>(smaller(kGroups, groups - four)) * sizeof *to;
    for (std::int64_t k = 0; k < count; k += together ? count : 1) {
      if (bytes < kGroups * sizeof *to) __builtin_memset(to + k * kGroups, 0, kGroups * sizeof *to);
      __builtin_memcpy(to + k * kGroups, scales + coded.value_scales(first + k) + four,
                       together ? static_cast<std::size_t>(count) * bytes : bytes);
    }
    __builtin_memset(to + count * kGroups, 0,
                     static_cast<std::size_t>((kDigitValues - count) * kGroups) * sizeof *to);
  }
}

/// Sets the scales of groups of equal numbers to 0. They are the smallest scale, 2^-126, which is too small
/// for digits; the codes are 0.
inline void drop_smallest_scales(const ValueDigits& values) {
  constexpr std::uint16_t kSmallest = 0x0080;
  for (std::int64_t i = 0; i < values.fours * kDigitValues * ValueDigits::kGroups; ++i)
    values.scale[i] = values.scale[i] == kSmallest ? std::uint16_t{0} : values.scale[i];
}

/// Writes a row's weights times the scales of four groups. Returns whether they have digits.
inline bool fold_weights(const float* weights, std::int64_t four, std::int64_t quads,
                         const ValueDigits& values, int row) {
  constexpr std::int64_t kGroups = ValueDigits::kGroups;
  const std::int64_t scales = four * kDigitValues * kGroups;
  Vf most = zero(), offset = zero();
  for (std::int64_t q = 0; q < quads; ++q) {
    const std::int64_t at = q * kQuad * kGroups;
    const Vf weight = each_four_times(weights + q * kQuad), scale = load_bf16(values.scale + scales + at);
    const Vf t = mul(weight, scale);
    store(values.numbers + at, t);
    most = larger_magnitude(most, t);
    offset = mul_add(weight, mul_add(scale, splat(7.5f), load_bf16(values.offset + scales + at)), offset);
  }
  alignas(64) float largest[kLanes], factor[kLanes], sums[kLanes];
  store(largest, largest_of_quarters(most));
  store(sums, sum_of_quarters(offset));
  bool fits = true;
  for (std::int64_t g = 0; g < kGroups; ++g) {
    const DigitUnit unit = digit_unit(largest[g], kLargestUnsigned);
    fits = fits && unit.fits;
    for (std::int64_t lane = g; lane < kLanes; lane += kGroups) factor[lane] = unit.factor;
    const std::int64_t to = (row * values.fours + four) * kGroups + g;
    values.unit[to] = unit.unit / 16;
    values.offset_sum[to] = sums[g];
  }
  std::uint8_t* to = values.digits + (row * ValueDigits::kQuads * values.fours + four) * kVectorBytes;
  for (std::int64_t q = 0; q < quads; ++q) {
    const Quads x = digits_of(load(values.numbers + q * kQuad * kGroups), load(factor), 0);
    store_quads(to + q * values.fours * kVectorBytes, bytes_of_words(transpose_lanes(x)));
  }
  return fits;
}

/// The same for all groups. A row without digits adds nothing.
inline bool fold_row(const float* weights, std::int64_t quads, const ValueDigits& values, int row) {
  bool fits = true;
  for (std::int64_t four = 0; four < values.fours; ++four)
    fits = fold_weights(weights, four, quads, values, row) && fits;
  const std::int64_t groups = values.fours * ValueDigits::kGroups;
  for (std::int64_t g = row * groups; !fits && g < (row + 1) * groups; ++g)
    values.unit[g] = values.offset_sum[g] = 0;
  return fits;
}

/// Adds the products of kRows rows with kCodeChannels channels of values, from `channel` on, to `output`.
template <int kRows>
HEED_BYTE_DOTS void add_value_products(const ValueDigits& values, const std::uint8_t* const* from,
                                       std::int64_t quads, std::int64_t channel, std::int64_t group,
                                       float* output, std::int64_t columns) {
  const std::int64_t groups = values.fours * ValueDigits::kGroups;
  const std::int64_t stride = ValueDigits::kQuads * groups * kLanes;
  Quads sums[std::size_t{kRows}][3][2];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 3
    for (int d = 0; d < 3; ++d) sums[r][d][0] = sums[r][d][1] = zero_quads();
  const std::uint8_t* at = values.digits + group * kLanes;
  for (std::int64_t q = 0; q < quads; ++q, at += groups * kLanes, from += kQuad) {
    const Quads halves = columns_of_four_rows(from, channel / 2);
    const Quads codes[2] = {centred_low_halves(halves), centred_high_halves(halves)};
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 3
      for (int d = 0; d < 3; ++d) {
        const Quads digit = splat_quad(at + r * stride + d * kQuad);
        sums[r][d][0] = dot_bytes(digit, codes[0], sums[r][d][0]);
        sums[r][d][1] = dot_bytes(digit, codes[1], sums[r][d][1]);
      }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const Vf unit = splat(values.unit[r * groups + group]),
             sum = splat(values.offset_sum[r * groups + group]);
    Vf a = mul_add(number_of(sums[r][0][0], sums[r][1][0], sums[r][2][0]), unit, sum);
    Vf b = mul_add(number_of(sums[r][0][1], sums[r][1][1], sums[r][2][1]), unit, sum);
    join_pairs(Vf(a), Vf(b), a, b);
    float* to = output + r * columns + channel;
    store(to, add(load(to), a));
    store(to + kLanes, add(load(to + kLanes), b));
  }
}

/// Adds weights [rows][kKvBlock] times the coded values `range` of a KV block, whose key 0 is key `key` of
/// the segment, to the partial sums. Calls recompute(row, begin, end) for rows without digits.
template <class Recompute>
void add_coded_values(const TaskState& state, std::int64_t key, const KeyRange& range, const float* weights,
                      PassPrefetch& prefetch, Recompute recompute) {
  const CodedRows coded = coded_rows_of(state, false);
  const RowCodes& codes = coded.cache.codes;
  const ValueDigits values = value_digits(state);
  const std::int64_t width = state.call.value_dim, columns = state.w.value_columns;
  const std::int64_t groups = (width + codes.value_group - 1) / codes.value_group;
  for (std::int64_t begin = range.begin, end = begin; begin < range.end; begin = end) {
    end = smaller(range.end, round_up(begin + 1, kDigitValues));
    const std::int64_t count = end - begin, quads = (count + kQuad - 1) / kQuad;
    const std::uint8_t* from[kDigitValues];
    find_rows(coded.rows, key + begin, count, quads * kQuad, from);
    for (std::int64_t k = 0; k < count; ++k) prefetch.fetch();
    gather_scales(coded, key + begin, count, groups, codes.value_scale, values.scale);
    gather_scales(coded, key + begin, count, groups, codes.value_offset, values.offset);
    drop_smallest_scales(values);
    std::uint32_t unfit = 0;
    for (std::int64_t row = 0; row < state.rows; row += kTileRows) {
      const std::int64_t rows = smaller(kTileRows, state.rows - row);
      for (int r = 0; r < (rows < 3 ? rows : kTileRows); ++r)
        if (!fold_row(weights + (row + smaller(r, rows - 1)) * kKvBlock + begin, quads, values, r) &&
            r < rows)
          unfit |= 1u << (row + r);
      const auto add = rows == 1   ? add_value_products<1>
                       : rows == 2 ? add_value_products<2>
                                   : add_value_products<kTileRows>;
      for (std::int64_t channel = 0; channel < width; channel += kCodeChannels)
        add(values, from, quads, channel, channel / codes.value_group, state.w.partial + row * columns,
            columns);
    }
    for (std::int64_t r = 0; r < state.rows; ++r)
      if ((unfit >> r & 1) != 0) recompute(r, begin, end);
  }
}

}  // namespace heed::detail::HEED_ISA
