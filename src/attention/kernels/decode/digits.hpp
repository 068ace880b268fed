// Products of a cache's codes as they lie with queries and weights that are written in digits. A number
// t is rounded to u (d0 + 2^8 d1 + 2^16 d2). The unit u is chosen so that the row's largest number fills
// three digits of eight bits. Dot products of bytes then sum digits times codes as integers. So a sum is
// exact, and the rounding of t is its only error: some 2^-23 of the row's largest number at most.
//
// For keys, the numbers are queries times the scales of a group of keys; for values, weights times the scales
// of values. Codes of int4 count from their middle, 7.5, so that the offset o + 7.5 s is small beside the
// numbers that it stands for.
#pragma once

#include "attention/kernels/decode/code_bytes.hpp"
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
inline constexpr float kSmallestWithDigits = 0x1p-90f, kLargestWithDigits = 0x1p120f;
struct DigitUnit {
  float factor = 0, unit = 0;
  bool fits = true;
};
HEED_INLINE DigitUnit digit_unit(float largest) {
  if (largest == 0) return {};
  if (!(largest > kSmallestWithDigits && largest < kLargestWithDigits)) return {0, 0, false};
  return {kLargestSigned / largest, largest / kLargestSigned, true};
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
  if (rows.numbers != nullptr)
    for (std::int64_t k = 0; k < count; ++k) from[k] = start + rows.numbers[first + k] * rows.row_bytes;
  else
    for (std::int64_t k = 0; k < count; ++k) from[k] = start + (first + k) * rows.row_bytes;
  for (std::int64_t k = count; k < whole; ++k) from[k] = from[count - 1];
}

// ---- keys

/// The digits of a task's queries times the scales of a group of keys.
struct KeyDigits {
  /// [rows][1 + depth / 16][3 digits and a gap][16 channels], in the order of CodeBytes. The first vector
  /// has the sums that products start from, because keys count from 0, not from their middle.
  std::uint8_t* digits;
  std::int64_t stride;    // of a row, in bytes
  float *scale, *middle;  // [depth], of a group of keys; what a code's middle stands for
  const char** lines;     // that are prefetched while sixteen keys are multiplied
  DigitUnit unit[kGroupRows] = {};
  float offset[kGroupRows] = {};
};

/// How many lines of memory sixteen keys fill.
template <RowFormat kFormat>
constexpr std::int64_t lines_of_keys(std::int64_t depth) {
  return depth * kLanes / (kVectorBytes * CodeBytes<kFormat>::kParts);
}

inline KeyDigits key_digits(const TaskState& state) {
  KeyDigits keys;
  Memory memory(state.w.cached);
  keys.stride = kVectorBytes + kQuad * state.w.depth;
  keys.digits = memory.take<std::uint8_t>(kGroupRows * keys.stride);
  keys.scale = memory.floats(state.w.depth);
  keys.middle = memory.floats(state.w.depth);
  keys.lines = memory.take<const char*>(lines_of_keys<RowFormat::int8>(state.w.depth));
  return keys;
}

/// Writes the digits of the numbers of one row, which lie there, and the sums before them.
template <RowFormat kFormat>
HEED_BYTE_DOTS void write_key_digits(std::int64_t depth, float factor, std::uint8_t* row) {
  Quads sums = zero_quads();
  for (std::uint8_t* at = row + kVectorBytes; at < row + kVectorBytes + kQuad * depth;
       at += 2 * kVectorBytes) {
    const auto* numbers = reinterpret_cast<const float*>(at);
    Vf t[2] = {load(numbers), load(numbers + kLanes)};
    CodeBytes<kFormat>::order(t[0], t[1]);
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      const Quads x = sub_bytes(digits_of(t[v], splat(factor), kSignedBias), splat_whole(kSignedBias));
      const Quads digits = transpose_lanes(bytes_of_words(x));
      store_quads(at + v * kVectorBytes, digits);
      sums = dot_bytes(splat_byte(1), digits, sums);
    }
  }
  store_quads(row, times_whole(sums, -CodeBytes<kFormat>::kMiddle));
}

/// Writes queries times the scales of the group of key `first`. If they have no digits, the scores are NaN,
/// unless the numbers are too small to change a score.
template <RowFormat kFormat>
void fold_queries(const TaskState& state, const CodedRows& coded, std::int64_t first, KeyDigits& keys) {
  using Bytes = CodeBytes<kFormat>;
  const RowCodes& codes = coded.cache.codes;
  const std::int64_t depth = state.w.depth;
  const std::int64_t at = coded.key_scales(coded.position(first));
  for (std::int64_t d = 0; d < depth; d += kLanes) {
    const Vf scale = load_bf16(codes.key_scale + at + d);
    store(keys.scale + d, scale);
    if (Bytes::kHasOffset)
      store(keys.middle + d, mul_add(scale, splat(7.5f), load_bf16(codes.key_offset + at + d)));
  }
  const float magnitude =
      Bytes::kLargest * static_cast<float>(depth) * __builtin_fabsf(state.call.log2_scale);
  for (std::int64_t r = 0; r < state.rows; ++r) {
    const float* query = state.queries.data + r * state.queries.stride;
    std::uint8_t* row = keys.digits + r * keys.stride;
    auto* numbers = reinterpret_cast<float*>(row + kVectorBytes);
    Vf most = zero(), offset = zero();
    for (std::int64_t d = 0; d < depth; d += kLanes) {
      const Vf q = load(query + d), t = mul(q, load(keys.scale + d));
      store(numbers + d, t);
      most = larger_magnitude(most, t);
      if (Bytes::kHasOffset) offset = mul_add(q, load(keys.middle + d), offset);
    }
    const float largest = largest_magnitude(most);
    DigitUnit& unit = keys.unit[r];
    unit = digit_unit(largest);
    write_key_digits<kFormat>(depth, unit.factor, row);
    unit.unit /= Bytes::kKeyFactor;
    const bool changes_no_score = largest * magnitude < 0x1p-40f;
    keys.offset[r] = !unit.fits && !changes_no_score ? __builtin_nanf("")
                     : Bytes::kHasOffset             ? reduce_add(offset)
                                                     : 0;
  }
}

/// Prefetches the scales of the group of key `next`, if there is one.
template <RowFormat kFormat>
void fetch_key_scales(const TaskState& state, const CodedRows& coded, std::int64_t next) {
  if (next >= coded.rows.count || coded.position(next) >= coded.sequence.coded) return;
  const RowCodes& codes = coded.cache.codes;
  const std::int64_t at = coded.key_scales(coded.position(next));
  for (std::int64_t d = 0; d < state.w.depth; d += kCodeChannels) {
    __builtin_prefetch(codes.key_scale + at + d, 0, 2);
    if (CodeBytes<kFormat>::kHasOffset) __builtin_prefetch(codes.key_offset + at + d, 0, 2);
  }
}

/// Products of kRows rows with sixteen keys, in units.
template <int kRows, RowFormat kFormat>
HEED_BYTE_DOTS void multiply_keys(const std::uint8_t* const (&from)[kLanes], std::int64_t depth,
                                  const std::uint8_t* digits, std::int64_t stride, const char* const* lines,
                                  Vf (&products)[std::size_t{kRows}]) {
  constexpr int kAtOnce = kRows == 1 ? 4 : 2;  // vectors of four keys
  constexpr int kParts = CodeBytes<kFormat>::kParts;
  Vf number[std::size_t{kRows}][4];
#pragma GCC unroll 2
  for (int first = 0; first < 4; first += kAtOnce) {
    Quads sums[std::size_t{kRows}][3][std::size_t{kAtOnce}];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 3
      for (int d = 0; d < 3; ++d)
#pragma GCC unroll 4
        for (int v = 0; v < kAtOnce; ++v) sums[r][d][v] = splat_four_quads(digits + r * stride + d * kLanes);
    const std::uint8_t* at = digits + kVectorBytes;
    for (std::int64_t byte = 0; byte < depth / kParts; byte += kLanes) {
      Quads codes[std::size_t{kAtOnce}];
#pragma GCC unroll 4
      for (int v = 0; v < kAtOnce; ++v, ++lines) {
        codes[v] = four_rows(from + 4 * (first + v), byte);
        __builtin_prefetch(*lines, 0, 2);
      }
#pragma GCC unroll 2
      for (int part = 0; part < kParts; ++part, at += kVectorBytes) {
        Quads keys[std::size_t{kAtOnce}];
#pragma GCC unroll 4
        for (int v = 0; v < kAtOnce; ++v) keys[v] = CodeBytes<kFormat>::key(codes[v], part);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 3
          for (int d = 0; d < 3; ++d) {
            const Quads digit = splat_four_quads(at + r * stride + d * kLanes);
#pragma GCC unroll 4
            for (int v = 0; v < kAtOnce; ++v) sums[r][d][v] = dot_bytes(keys[v], digit, sums[r][d][v]);
          }
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < kAtOnce; ++v)
        number[r][first + v] = number_of(sums[r][0][v], sums[r][1][v], sums[r][2][v]);
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
template <int kRows, RowFormat kFormat>
void score_sixteen(const TaskState& state, const KeyDigits& keys, const std::uint8_t* const (&from)[kLanes],
                   std::int64_t row, const KeyRange& range, BlockScores& scores) {
  Vf products[std::size_t{kRows}];
  multiply_keys<kRows, kFormat>(from, state.w.depth, keys.digits + row * keys.stride, keys.stride, keys.lines,
                                products);
  for (int r = 0; r < kRows && row + r < state.rows; ++r) {
    const Vf product = mul_add(products[r], splat(keys.unit[row + r].unit), splat(keys.offset[row + r]));
    const Vf score = mul(product, splat(state.call.log2_scale));
    scores.in_range[row / kTileRows] &=
        bits_of(greater_equal(splat(kMaxScore), absolute(score))) == kAllLanes;
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
template <RowFormat kFormat>
void score_coded_keys(const TaskState& state, std::int64_t key, const KeyRange& range, BlockScores& scores,
                      LinePrefetch& prefetch) {
  const CodedRows coded = coded_rows_of(state, true);
  KeyDigits keys = key_digits(state);
  for (std::int64_t begin = range.begin, end = begin; begin < range.end; begin = end) {
    end = begin + keys_of_group(coded, key + begin, key + range.end);
    fetch_key_scales<kFormat>(state, coded, key + end);
    fold_queries<kFormat>(state, coded, key + begin, keys);
    for (std::int64_t at = begin; at < end; at += kLanes) {
      const std::uint8_t* from[kLanes];
      const std::int64_t count = smaller(kLanes, end - at);
      find_rows(state.kv.keys, key + at, count, kLanes, from);
      prefetch.list(count, keys.lines, lines_of_keys<kFormat>(state.w.depth));
      for (std::int64_t row = 0; row < state.rows; row += kTileRows) {
        if (row == kTileRows) prefetch.list(0, keys.lines, lines_of_keys<kFormat>(state.w.depth));
        const std::int64_t rows = state.rows - row;
        const auto score = rows == 1   ? score_sixteen<1, kFormat>
                           : rows == 2 ? score_sixteen<2, kFormat>
                                       : score_sixteen<kTileRows, kFormat>;
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
  std::int64_t group_channels, fours;  // channels of a group, and fours of groups
  float *scale, *middle;               // [fours][kDigitValues][kGroups]; what a code's middle stands for
  float* numbers;                      // [kDigitValues][kGroups]
  std::uint8_t* digits;                // [kTileRows][kQuads][fours][kGroups][3 digits and a gap][4 values]
  float *unit, *offset;                // [kTileRows][fours * kGroups]
};

inline ValueDigits value_digits(const TaskState& state) {
  Memory memory(state.w.cached);
  ValueDigits values;
  values.group_channels = state.kv.codes->codes.value_group;
  const std::int64_t groups = (state.call.value_dim + values.group_channels - 1) / values.group_channels;
  values.fours = (groups + ValueDigits::kGroups - 1) / ValueDigits::kGroups;
  const std::int64_t scales = values.fours * kDigitValues * ValueDigits::kGroups;
  values.scale = memory.floats(scales);
  values.middle = memory.floats(scales);
  values.numbers = memory.floats(kDigitValues * ValueDigits::kGroups);
  values.digits = memory.take<std::uint8_t>(kTileRows * ValueDigits::kQuads * values.fours * kVectorBytes);
  values.unit = memory.floats(kTileRows * values.fours * ValueDigits::kGroups);
  values.offset = memory.floats(kTileRows * values.fours * ValueDigits::kGroups);
  return values;
}

/// Copies scales or offsets of up to four values from `first` on, `bytes` bytes of each: one number per
/// group, at most four. The rest is 0.
inline void gather_scales(const CodedRows& coded, std::int64_t first, std::int64_t count, std::size_t bytes,
                          const std::uint16_t* scales, std::uint16_t (&to)[kLanes]) {
  __builtin_memset(to, 0, sizeof to);
  for (std::int64_t k = 0; k < smaller(kQuad, count); ++k)
    __builtin_memcpy(to + k * ValueDigits::kGroups, scales + coded.value_scales(first + k), bytes);
}

/// Collects the scales of values [first, first + count) and what the middle of their codes stands for. Groups
/// of zeros have the smallest scale, 2^-126, which is too small for digits. It becomes 0, which changes other
/// numbers, too, by 128 * 2^-126 at most.
template <RowFormat kFormat>
void collect_scales(const CodedRows& coded, std::int64_t first, std::int64_t count, std::int64_t groups,
                    const ValueDigits& values) {
  constexpr std::int64_t kGroups = ValueDigits::kGroups;
  const RowCodes& codes = coded.cache.codes;
  const bool together =
      groups == kGroups && codes.value_row_stride == groups && coded.rows.is_even(first, count);
  std::int64_t to = 0;
  for (std::int64_t four = 0; four < groups; four += kGroups, to = four * kDigitValues)
    for (std::int64_t k = 0; k < count; k += kQuad, to += kLanes) {
      std::uint16_t gathered[2][kLanes];
      const std::uint16_t* at[2] = {gathered[0], gathered[1]};
      for (int offset = 0; offset < (CodeBytes<kFormat>::kHasOffset ? 2 : 1); ++offset) {
        const std::uint16_t* from = offset == 0 ? codes.value_scale : codes.value_offset;
        if (together && k + kQuad <= count)
          at[offset] = from + coded.value_scales(first) + k * kGroups;
        else
          gather_scales(coded, first + k, count - k,
                        static_cast<std::size_t>(smaller(kGroups, groups - four)) * sizeof *from, from + four,
                        gathered[offset]);
      }
      Vf scale = load_bf16(at[0]);
      scale = select(greater_equal(splat(0x1p-126f), scale), zero(), scale);
      store(values.scale + to, scale);
      if (CodeBytes<kFormat>::kHasOffset)
        store(values.middle + to, mul_add(scale, splat(7.5f), load_bf16(at[1])));
    }
}

/// Prefetches the scales of the values from `next` on, if there are any.
template <RowFormat kFormat>
void fetch_value_scales(const CodedRows& coded, std::int64_t next) {
  constexpr std::int64_t kStep = 8;  // values whose scales fill a line, if they have four groups
  const RowCodes& codes = coded.cache.codes;
  for (std::int64_t k = next; k < smaller(next + kDigitValues, coded.rows.count); k += kStep) {
    __builtin_prefetch(codes.value_scale + coded.value_scales(k), 0, 2);
    if (CodeBytes<kFormat>::kHasOffset) __builtin_prefetch(codes.value_offset + coded.value_scales(k), 0, 2);
  }
}

/// Writes a row's weights times the scales of four groups. Returns whether they have digits.
template <RowFormat kFormat>
bool fold_weights(const float* weights, std::int64_t four, std::int64_t quads, const ValueDigits& values,
                  int row) {
  constexpr std::int64_t kGroups = ValueDigits::kGroups;
  const float* scale = values.scale + four * kDigitValues * kGroups;
  const float* middle = values.middle + four * kDigitValues * kGroups;
  float* numbers = values.numbers;
  Vf most = zero(), offset = zero();
  for (std::int64_t q = 0; q < quads; ++q) {
    const std::int64_t at = q * kQuad * kGroups;
    const Vf weight = each_four_times(weights + q * kQuad), t = mul(weight, load(scale + at));
    store(numbers + at, t);
    most = larger_magnitude(most, t);
    if (CodeBytes<kFormat>::kHasOffset) offset = mul_add(weight, load(middle + at), offset);
  }
  most = largest_of_quarters(most);
  const Mask nothing = greater_equal(zero(), most);
  const Mask fits = both(greater(most, splat(kSmallestWithDigits)), greater(splat(kLargestWithDigits), most));
  const Vf factor = keep(fits, div(splat(kLargestUnsigned), most));
  alignas(64) float unit[kLanes], sums[kLanes];
  store(unit, keep(fits, div(most, splat(kLargestUnsigned * CodeBytes<kFormat>::kValueFactor))));
  store(sums, sum_of_quarters(offset));
  const std::int64_t group = (row * values.fours + four) * kGroups;
  for (std::int64_t g = 0; g < kGroups; ++g) {
    values.unit[group + g] = unit[g];
    values.offset[group + g] = sums[g];
  }
  std::uint8_t* to = values.digits + (row * ValueDigits::kQuads * values.fours + four) * kVectorBytes;
  const std::int64_t stride = values.fours * kVectorBytes;
  for (std::int64_t q = 0; q < quads; ++q, to += stride, numbers += kLanes)
    store_quads(to, bytes_of_words(transpose_lanes(digits_of(load(numbers), factor, 0))));
  return bits_of(either(fits, nothing)) == kAllLanes;
}

/// The same for all groups. A row without digits adds nothing.
template <RowFormat kFormat>
bool fold_row(const float* weights, std::int64_t quads, const ValueDigits& values, int row) {
  bool fits = true;
  for (std::int64_t four = 0; four < values.fours; ++four)
    fits = fold_weights<kFormat>(weights, four, quads, values, row) && fits;
  const std::int64_t groups = values.fours * ValueDigits::kGroups;
  for (std::int64_t g = row * groups; !fits && g < (row + 1) * groups; ++g)
    values.unit[g] = values.offset[g] = 0;
  return fits;
}

/// Adds the products of kRows rows with kCodeChannels channels of values, from `channel` on, to `output`.
template <int kRows, RowFormat kFormat>
HEED_BYTE_DOTS void add_value_products(const ValueDigits& values, const std::uint8_t* const* from,
                                       std::int64_t quads, std::int64_t channel, const char* const* lines,
                                       float* output, std::int64_t columns) {
  const std::int64_t groups = values.fours * ValueDigits::kGroups, group = channel / values.group_channels;
  const std::int64_t stride = ValueDigits::kQuads * groups * kLanes;
  constexpr int kLines = 2 / CodeBytes<kFormat>::kParts;  // that a step reads
  Quads sums[std::size_t{kRows}][3][2];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 3
    for (int d = 0; d < 3; ++d) sums[r][d][0] = sums[r][d][1] = zero_quads();
  const std::uint8_t* at = values.digits + group * kLanes;
  for (std::int64_t q = 0; q < quads; ++q, at += groups * kLanes, from += kQuad) {
    Quads codes[2];
    CodeBytes<kFormat>::values(from, channel, codes);
#pragma GCC unroll 2
    for (int line = 0; line < kLines; ++line, ++lines) __builtin_prefetch(*lines, 0, 2);
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
    const Vf unit = splat(values.unit[r * groups + group]), sum = splat(values.offset[r * groups + group]);
    Vf a = mul_add(number_of(sums[r][0][0], sums[r][1][0], sums[r][2][0]), unit, sum);
    Vf b = mul_add(number_of(sums[r][0][1], sums[r][1][1], sums[r][2][1]), unit, sum);
    CodeBytes<kFormat>::restore_order(a, b);
    float* to = output + r * columns + channel;
    store(to, add(load(to), a));
    store(to + kLanes, add(load(to + kLanes), b));
  }
}

/// Adds weights [rows][kKvBlock] times the coded values `range` of a KV block, whose key 0 is key `key` of
/// the segment, to the partial sums. Calls recompute(row, begin, end) for rows without digits.
template <RowFormat kFormat, class Recompute>
void add_coded_values(const TaskState& state, std::int64_t key, const KeyRange& range, const float* weights,
                      LinePrefetch& prefetch, Recompute recompute) {
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
    fetch_value_scales<kFormat>(coded, key + end);
    collect_scales<kFormat>(coded, key + begin, count, groups, values);
    std::uint32_t unfit = 0;
    for (std::int64_t row = 0; row < state.rows; row += kTileRows) {
      const std::int64_t rows = smaller(kTileRows, state.rows - row);
      for (int r = 0; r < (rows < 3 ? rows : kTileRows); ++r)
        if (!fold_row<kFormat>(weights + (row + smaller(r, rows - 1)) * kKvBlock + begin, quads, values, r) &&
            r < rows)
          unfit |= 1u << (row + r);
      const auto add = rows == 1   ? add_value_products<1, kFormat>
                       : rows == 2 ? add_value_products<2, kFormat>
                                   : add_value_products<kTileRows, kFormat>;
      for (std::int64_t channel = 0; channel < width; channel += kCodeChannels) {
        const char* lines[kDigitValues / 2];
        const std::int64_t before = count * channel / width,
                           after = count * (channel + kCodeChannels) / width;
        prefetch.list(row == 0 ? after - before : 0, lines, 2 * quads / CodeBytes<kFormat>::kParts);
        add(values, from, quads, channel, lines, state.w.partial + row * columns, columns);
      }
    }
    for (std::int64_t r = 0; r < state.rows; ++r)
      if ((unfit >> r & 1) != 0) recompute(r, begin, end);
  }
}

}  // namespace heed::detail::HEED_ISA
