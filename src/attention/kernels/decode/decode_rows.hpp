// A panel's rows, as the decode kernel reads them. Floats of any width are read in place; codes become floats
// in registers. The loaded values have the same bits as in even_rows().
#pragma once

#include "attention/kernels/softmax/workspace.hpp"

namespace heed::detail::HEED_ISA {

/// Loads one vector of elements as floats; in formats of pairs, loads the pairs unchanged.
template <DType kType, class Format = F32Format>
HEED_INLINE Vf load_as(const void* data, std::int64_t at) {
  if constexpr (Format::kElements == 2)
    return load(reinterpret_cast<const float*>(static_cast<const std::uint16_t*>(data) + at));
  else if constexpr (kType == DType::f32)
    return load(static_cast<const float*>(data) + at);
  else if constexpr (kType == DType::bf16)
    return load_bf16(static_cast<const std::uint16_t*>(data) + at);
  else
    return load_f16(static_cast<const std::uint16_t*>(data) + at);
}

/// The vectors of a row of values in tiles that are as tall as possible, so that each value is converted
/// once.
constexpr int tall_tile_vectors(int rows) {
  return kRegisters >= 32 ? (rows >= 4 ? 4 : 8) : rows >= 4 ? 2 : 4;
}

/// Rows of floats from `first` on.
template <DType kType, class Format = F32Format>
struct FloatRows {
  using Row = std::int64_t;  // index of its first element
  using Column = std::int64_t;
  static constexpr int kValueRows = kDecodeRows;
  template <int kRows>
  static constexpr int kVectors = decode_vectors(kRows);
  static constexpr int kParts = 1;                             // vectors that load() loads
  static constexpr int kBits = kType == DType::f32 ? 32 : 16;  // of an element
  HeadRows rows;
  std::int64_t first;

  HEED_INLINE Row row(std::int64_t k) const { return rows.at(first + k); }
  HEED_INLINE Column column(std::int64_t c) const { return c; }
  HEED_INLINE void load(Row row, Column column, Vf (&to)[std::size_t{kParts}]) const {
    to[0] = load_as<kType, Format>(rows.tensor.data, row + column);
  }
};

/// Rows of bf16, of whole pairs of vectors, from `first` on. One load gives the even elements of 2 kLanes by
/// a shift, and the odd ones by a mask. Loads in order cost two operations for each vector.
struct PairRows {
  using Row = std::int64_t;
  using Column = std::int64_t;
  static constexpr int kValueRows = kTileRows;
  template <int kRows>
  static constexpr int kVectors = tall_tile_vectors(kRows);
  static constexpr int kParts = 2;
  static constexpr int kBits = 16;
  HeadRows rows;
  std::int64_t first;

  HEED_INLINE Row row(std::int64_t k) const { return rows.at(first + k); }
  HEED_INLINE Column column(std::int64_t c) const { return c; }
  HEED_INLINE void load(Row row, Column column, Vf (&to)[std::size_t{kParts}]) const {
    const Vf pairs = load_as<DType::bf16, Bf16DotFormat>(rows.tensor.data, row + column);
    to[0] = low_halves(pairs);
    to[1] = high_halves(pairs);
  }
};

/// Whether the decode kernel reads a call's rows of `width` elements as PairRows.
HEED_INLINE bool are_pair_rows(DType dtype, std::int64_t width) {
  return kSplitsPairs && dtype == DType::bf16 && width % (2 * kLanes) == 0;
}

/// The keys of one group as their codes; the scales are folded into the queries (folded_queries()).
template <RowFormat kFormat>
struct CodedKeys {
  using Row = const std::uint8_t*;
  using Column = std::int64_t;
  static constexpr int kParts = 1;
  static constexpr int kBits = kFormat == RowFormat::int4 ? 4 : 8;
  HeadRows rows;
  std::int64_t first;

  HEED_INLINE Row row(std::int64_t k) const {
    return reinterpret_cast<const std::uint8_t*>(rows.address(first + k));
  }
  HEED_INLINE Column column(std::int64_t c) const { return c; }
  HEED_INLINE void load(Row row, Column c, Vf (&to)[std::size_t{kParts}]) const {
    to[0] = load_codes<kFormat>(row, c);
  }
};

/// Coded values, with scales [count][groups] of their groups of channels.
template <RowFormat kFormat>
struct CodedValues {
  static constexpr int kParts = 1;
  static constexpr int kBits = 0;  // not prefetched by lines
  static constexpr int kValueRows = kTileRows;
  template <int kRows>
  static constexpr int kVectors = tall_tile_vectors(kRows);
  struct Row {
    const std::uint8_t* codes;
    const float *scale, *offset;
  };
  struct Column {
    std::int64_t first, group;
  };
  HeadRows rows;
  std::int64_t first;
  const float *scale, *offset;
  std::int64_t groups, group;  // groups per row, and channels per group

  HEED_INLINE Row row(std::int64_t k) const {
    return {reinterpret_cast<const std::uint8_t*>(rows.address(first + k)), scale + k * groups,
            offset + k * groups};
  }
  HEED_INLINE Column column(std::int64_t c) const { return {c, c / group}; }
  HEED_INLINE void load(const Row& row, const Column& c, Vf (&to)[std::size_t{kParts}]) const {
    const Vf codes = load_codes<kFormat>(row.codes, c.first), unit = splat(row.scale[c.group]);
    to[0] = kFormat == RowFormat::int4 ? mul_add(codes, unit, splat(row.offset[c.group])) : mul(codes, unit);
  }
};

/// Converts n scales or offsets to floats.
inline void widen_scales(const std::uint16_t* from, std::int64_t n, float* to) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(to + i, load_bf16(from + i));
  for (; i < n; ++i) to[i] = bf16_at(from, i);
}

inline CodedRows coded_rows_of(const TaskContext& state, bool are_keys) {
  const KvSource& kv = state.kv;
  return {*kv.codes, kv.codes->sequences[state.task.sequence], are_keys ? kv.keys : kv.values,
          state.task.head_begin / state.call.group, are_keys || kv.codes->codes.values_in_keys};
}

/// How many of the keys [first, first + count) are codes. They precede the sequence's last rows, which are
/// floats.
inline std::int64_t coded_keys(const TaskContext& state, std::int64_t first, std::int64_t count) {
  const CodedRows rows = coded_rows_of(state, true);
  while (count > 0 && rows.position(first + count - 1) >= rows.sequence.coded) --count;
  return count;
}

/// Whether the decode kernel reads the codes of values directly. Otherwise even_rows() makes floats of them,
/// with the same bits.
inline bool reads_coded_values(const TaskContext& state) {
  const RowCodes& codes = state.kv.codes->codes;
  return !codes.values_in_keys && codes.value_group % kLanes == 0;
}

/// Number of keys from `first` on, before `end`, that share their scales.
inline std::int64_t keys_of_group(const CodedRows& rows, std::int64_t first, std::int64_t end) {
  const std::int64_t log2 = rows.cache.codes.group_log2;
  const std::int64_t group = rows.position(first) >> log2;
  if (rows.sequence.positions == nullptr) return smaller(end, (group + 1) << log2) - first;
  std::int64_t key = first + 1;
  while (key < end && rows.position(key) >> log2 == group) ++key;
  return key - first;
}

/// Query rows in the format that keys are read in. The score of a key is scale * (row . key + offset).
struct DecodeQueries {
  const float* rows;  // [rows][stride]
  std::int64_t stride, depth;
  float scale;
  const float* offset = nullptr;  // [rows], or nullptr: 0
};

/// Folds the scales of one group of keys into `count` queries from `row` on: q . (scale * code + offset) =
/// (q * scale) . code + q . offset. They lie at the end of w.cached, where decoding has no other rows.
template <RowFormat kFormat>
DecodeQueries folded_queries(const TaskState& state, const CodedRows& keys, std::int64_t first,
                             std::int64_t row, std::int64_t count) {
  static_assert(kTileRows <= kLanes && kPanel + kTileRows < kKvBlock);
  const RowCodes& codes = keys.cache.codes;
  const std::int64_t depth = state.w.depth, stride = state.w.padded_depth;
  const std::int64_t scales = keys.key_scales(keys.position(first));
  float* to = state.w.cached + (kKvBlock - kTileRows - 1) * stride;
  float* offset = to + kTileRows * stride;
  Vf sums[kLanes];
  for (int r = 0; r < kLanes; ++r) sums[r] = zero();
  for (std::int64_t r = 0; r < count; ++r) {
    const float* query = state.queries.data + (row + r) * state.queries.stride;
    for (std::int64_t d = 0; d < depth; d += kLanes) {
      const Vf q = load(query + d);
      store(to + r * stride + d, mul(q, load_bf16(codes.key_scale + scales + d)));
      if (kFormat == RowFormat::int4) sums[r] = mul_add(q, load_bf16(codes.key_offset + scales + d), sums[r]);
    }
  }
  if (kFormat == RowFormat::int4) store(offset, sum_each(sums));
  return {to, stride, depth, state.call.log2_scale, kFormat == RowFormat::int4 ? offset : nullptr};
}

/// Prepares values [first, first + count); their scales become floats in w.cached.
template <RowFormat kFormat>
CodedValues<kFormat> coded_values_of(const TaskState& state, std::int64_t first, std::int64_t count) {
  const CodedRows rows = coded_rows_of(state, false);
  const RowCodes& codes = rows.cache.codes;
  const std::int64_t groups = (state.call.value_dim + codes.value_group - 1) / codes.value_group;
  float* scale = state.w.cached;
  float* offset = scale + kPanel * groups;
  // Consecutive rows, as in a page, have consecutive scales.
  for (std::int64_t k = 0; k < count;) {
    const std::int64_t here =
        codes.value_row_stride == groups ? rows.rows.even_rows_from(first + k, count - k) : 1;
    const std::int64_t scales = rows.value_scales(first + k);
    widen_scales(codes.value_scale + scales, here * groups, scale + k * groups);
    if (kFormat == RowFormat::int4)
      widen_scales(codes.value_offset + scales, here * groups, offset + k * groups);
    k += here;
  }
  return {rows.rows, first, scale, offset, groups, codes.value_group};
}

}  // namespace heed::detail::HEED_ISA
