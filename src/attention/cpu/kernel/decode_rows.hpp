// The rows of a panel as few query rows read them: floats of any width where they lie, or codes, which become
// floats in registers. What is loaded is what even_rows() gives, bit for bit.
#pragma once

#include "attention/cpu/kernel/workspace.hpp"

namespace heed::detail::HEED_ISA {

/// One vector of elements as floats, or of pairs of elements as they lie.
template <Type kType, class Format = F32Format>
HEED_INLINE Vf load_as(const void* data, std::int64_t at) {
  if constexpr (Format::kElements == 2)
    return load(reinterpret_cast<const float*>(static_cast<const std::uint16_t*>(data) + at));
  else if constexpr (kType == Type::f32)
    return load(static_cast<const float*>(data) + at);
  else if constexpr (kType == Type::bf16)
    return load_bf16(static_cast<const std::uint16_t*>(data) + at);
  else
    return load_f16(static_cast<const std::uint16_t*>(data) + at);
}

/// Rows from `first` on.
template <Type kType, class Format = F32Format>
struct FloatRows {
  using Row = std::int64_t;  // its first element
  using Column = std::int64_t;
  HeadRows rows;
  std::int64_t first;

  HEED_INLINE Row row(std::int64_t k) const { return rows.at(first + k); }
  HEED_INLINE Column column(std::int64_t c) const { return c; }
  HEED_INLINE Vf load(Row row, Column column) const {
    return load_as<kType, Format>(rows.tensor.data, row + column);
  }
};

template <RowFormat kFormat>
HEED_INLINE Vf scaled(Vf codes, Vf scale, Vf offset) {
  return kFormat == RowFormat::int4 ? mul_add(codes, scale, offset) : mul(codes, scale);
}

/// Keys of one group, whose scales all have: `count` of them.
template <RowFormat kFormat>
struct CodedKeys {
  using Row = const std::uint8_t*;
  using Column = std::int64_t;
  HeadRows rows;
  std::int64_t first;
  const float *scale, *offset;

  HEED_INLINE Row row(std::int64_t k) const {
    return reinterpret_cast<const std::uint8_t*>(rows.address(first + k));
  }
  HEED_INLINE Column column(std::int64_t c) const { return c; }
  HEED_INLINE Vf load(Row row, Column c) const {
    const Vf add = kFormat == RowFormat::int4 ? HEED_ISA::load(offset + c) : zero();
    return scaled<kFormat>(load_codes<kFormat>(row, c), HEED_ISA::load(scale + c), add);
  }
};

/// Values, with scales [count][groups] of their groups of channels.
template <RowFormat kFormat>
struct CodedValues {
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
  std::int64_t groups, group;  // of a row, and channels of one

  HEED_INLINE Row row(std::int64_t k) const {
    return {reinterpret_cast<const std::uint8_t*>(rows.address(first + k)), scale + k * groups,
            offset + k * groups};
  }
  HEED_INLINE Column column(std::int64_t c) const { return {c, c / group}; }
  HEED_INLINE Vf load(const Row& row, const Column& c) const {
    const Vf add = kFormat == RowFormat::int4 ? splat(row.offset[c.group]) : zero();
    return scaled<kFormat>(load_codes<kFormat>(row.codes, c.first), splat(row.scale[c.group]), add);
  }
};

/// Scales or offsets as floats; n numbers.
inline void widen_scales(const std::uint16_t* from, std::int64_t n, float* to) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(to + i, load_bf16(from + i));
  for (; i < n; ++i) to[i] = bf16_at(from, i);
}

inline CodedRows coded_rows_of(const TaskContext& state, bool are_keys) {
  const KvSource& kv = state.kv;
  return {*kv.codes, kv.codes->sequences[state.task.sequence], are_keys ? kv.keys : kv.values,
          state.task.head_begin / state.call.group, are_keys};
}

/// Whether keys [first, first + count) are codes that decode reads as they are. Few rows at the end of a
/// sequence are floats, which even_rows() brings beside the codes.
inline bool are_codes(const TaskContext& state, std::int64_t first, std::int64_t count) {
  const CodedRows rows = coded_rows_of(state, true);
  return rows.position(first + count - 1) < rows.sequence.coded &&
         state.kv.codes->codes.value_group % kLanes == 0;
}

/// How many keys from `first` on, before `end`, share their scales.
inline std::int64_t keys_of_group(const CodedRows& rows, std::int64_t first, std::int64_t end) {
  const std::int64_t log2 = rows.cache.codes.group_log2;
  const std::int64_t group = rows.position(first) >> log2;
  if (rows.sequence.positions == nullptr) return smaller(end, (group + 1) << log2) - first;
  std::int64_t key = first + 1;
  while (key < end && rows.position(key) >> log2 == group) ++key;
  return key - first;
}

/// The keys of a group, whose scales lie at the end of w.cached as floats.
template <RowFormat kFormat>
CodedKeys<kFormat> coded_keys_of(TaskState& state, const CodedRows& rows, std::int64_t first) {
  const RowCodes& codes = rows.cache.codes;
  const std::int64_t depth = state.w.depth;
  const std::int64_t scales = rows.key_scales(rows.position(first), depth);
  float* scale = state.w.cached + (kKvBlock - 2) * state.w.padded_depth;
  float* offset = scale + state.w.padded_depth;
  if (state.scales != scales) {
    widen_scales(codes.key_scale + scales, depth, scale);
    if (kFormat == RowFormat::int4) widen_scales(codes.key_offset + scales, depth, offset);
    state.scales = scales;
  }
  return {rows.rows, first, scale, offset};
}

/// Values [first, first + count), whose scales come to w.cached as floats.
template <RowFormat kFormat>
CodedValues<kFormat> coded_values_of(const TaskState& state, std::int64_t first, std::int64_t count) {
  const CodedRows rows = coded_rows_of(state, false);
  const RowCodes& codes = rows.cache.codes;
  const std::int64_t groups = (state.call.value_dim + codes.value_group - 1) / codes.value_group;
  float* scale = state.w.cached;
  float* offset = scale + kPanel * groups;
  const auto widen = [&](const std::uint16_t* from, float* to) {
    if (rows.rows.numbers == nullptr && codes.value_row_stride == groups)
      return widen_scales(from + rows.value_scales(first), count * groups, to);
    for (std::int64_t k = 0; k < count; ++k)
      widen_scales(from + rows.value_scales(first + k), groups, to + k * groups);
  };
  widen(codes.value_scale, scale);
  if (kFormat == RowFormat::int4) widen(codes.value_offset, offset);
  return {rows.rows, first, scale, offset, groups, codes.value_group};
}

}  // namespace heed::detail::HEED_ISA
