// Converts coded cache rows to floats.
#pragma once

#include "attention/kernels/shared/pack.hpp"

namespace heed::detail::HEED_ISA {

/// Loads kLanes codes from `at` on as numbers, without scale and offset.
template <RowFormat kFormat>
HEED_INLINE Vf load_codes(const std::uint8_t* row, std::int64_t at) {
  if constexpr (kFormat == RowFormat::int8)
    return load_int8(row + at);
  else if constexpr (kFormat == RowFormat::int4)
    return load_int4(row + at / 2);
  else
    return load_e4m3(row + at);
}

/// Converts one row of codes to numbers. `n` is even for int4.
template <RowFormat kFormat>
void read_codes(const std::uint8_t* row, std::int64_t n, float* to) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(to + i, load_codes<kFormat>(row, i));
  if (i == n) return;
  constexpr std::int64_t kBits = kFormat == RowFormat::int4 ? 4 : 8;
  std::uint8_t rest[kLanes] = {};
  __builtin_memcpy(rest, row + i * kBits / 8, static_cast<std::size_t>((n - i) * kBits / 8));
  alignas(64) float numbers[kLanes];
  store(numbers, load_codes<kFormat>(rest, 0));
  for (std::int64_t k = i; k < n; ++k) to[k] = numbers[k - i];
}

inline void read_codes(RowFormat format, const std::uint8_t* row, std::int64_t n, float* to) {
  if (format == RowFormat::int8) return read_codes<RowFormat::int8>(row, n, to);
  if (format == RowFormat::int4) return read_codes<RowFormat::int4>(row, n, to);
  read_codes<RowFormat::e4m3>(row, n, to);
}

HEED_INLINE float bf16_at(const std::uint16_t* numbers, std::int64_t i) {
  return float_of_bits(std::uint32_t{numbers[i]} << 16);
}

/// The key or value rows of a task's sequence, for one key head.
struct CodedRows {
  const CacheRows& cache;
  const CachedSequence& sequence;
  HeadRows rows;
  std::int64_t head;
  bool have_key_scales;  // keys, and values that are channels of keys

  [[nodiscard]] const std::uint8_t* row(std::int64_t j) const {
    return reinterpret_cast<const std::uint8_t*>(rows.address(j));
  }
  [[nodiscard]] std::int64_t position(std::int64_t j) const {
    return sequence.positions != nullptr ? sequence.positions[j] : j;
  }
  [[nodiscard]] const float* tail(std::int64_t position, std::int64_t width) const {
    const std::int64_t length = 2 * cache.codes.group;
    const std::int64_t row = head * length + (position & (length - 1));
    return have_key_scales ? sequence.key_tail + row * cache.codes.key_dim
                           : sequence.value_tail + row * width;
  }
  /// Index of the first scale of a key at `position`.
  [[nodiscard]] std::int64_t key_scales(std::int64_t position) const {
    return (sequence.groups[position >> cache.codes.group_log2] * cache.kv_heads + head) *
           cache.codes.key_dim;
  }
  [[nodiscard]] std::int64_t value_scales(std::int64_t j) const {
    const std::int64_t number = rows.numbers != nullptr ? rows.numbers[j] : sequence.first_row + j;
    return head * cache.codes.value_head_stride + number * cache.codes.value_row_stride;
  }
};

/// to [n] = scale * to + offset, for the channels of a key.
inline void scale_key(const RowCodes& codes, std::int64_t scales, std::int64_t n, float* to) {
  const std::uint16_t* scale = codes.key_scale + scales;
  const std::uint16_t* offset = codes.key_offset != nullptr ? codes.key_offset + scales : nullptr;
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    store(to + i,
          mul_add(load(to + i), load_bf16(scale + i), offset != nullptr ? load_bf16(offset + i) : zero()));
  for (; i < n; ++i)
    to[i] = __builtin_fmaf(to[i], bf16_at(scale, i), offset != nullptr ? bf16_at(offset, i) : 0.0f);
}

/// The same for a value, whose groups of channels share a scale.
inline void scale_value(const RowCodes& codes, std::int64_t scales, std::int64_t n, float* to) {
  for (std::int64_t c = 0; c * codes.value_group < n; ++c) {
    const float scale = bf16_at(codes.value_scale, scales + c);
    const float offset = codes.value_offset != nullptr ? bf16_at(codes.value_offset, scales + c) : 0.0f;
    const std::int64_t end = smaller(n, (c + 1) * codes.value_group);
    std::int64_t i = c * codes.value_group;
    for (; i + kLanes <= end; i += kLanes) store(to + i, mul_add(load(to + i), splat(scale), splat(offset)));
    for (; i < end; ++i) to[i] = __builtin_fmaf(to[i], scale, offset);
  }
}

inline void read_coded_row(const CodedRows& coded, std::int64_t j, std::int64_t width, float* to) {
  const std::int64_t position = coded.position(j);
  if (position >= coded.sequence.coded) {
    const float* from = coded.tail(position, width);
    for (std::int64_t i = 0; i < width; ++i) to[i] = from[i];
    return;
  }
  read_codes(coded.cache.codes.format, coded.row(j), width, to);
  if (coded.have_key_scales)
    scale_key(coded.cache.codes, coded.key_scales(position), width, to);
  else
    scale_value(coded.cache.codes, coded.value_scales(j), width, to);
}

}  // namespace heed::detail::HEED_ISA
