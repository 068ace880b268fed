// The rows of a KV cache, as kernels see them: each row's memory and position, and the meaning of its codes.
// Plain data: a target compiled for one instruction set must share no inline function with code that runs
// anywhere.
#pragma once

#include <cstdint>

namespace heed::detail {

/// Storage formats of a cache's rows.
enum class RowFormat : std::uint8_t {
  floats,  ///< f32, bf16 or f16, as the tensor says
  int8,    ///< x = scale * code, codes -127 to 127
  int4,    ///< x = scale * code + offset, codes 0 to 15; the low half of a byte holds the even element
  e4m3,    ///< x = scale * code, codes with 1 sign, 4 exponent and 3 fraction bits
};

/// Scales and offsets of codes, in bf16. A key element uses the scale of its channel and group of positions.
/// A value element uses the scale of its row and group of channels, unless values are channels of the keys.
struct RowCodes {
  RowFormat format = RowFormat::floats;
  bool values_in_keys = false;  ///< values are the first channels of the keys, with the keys' scales
  std::int64_t key_dim = 0;     ///< D
  std::int64_t group = 0, group_log2 = 0;                               ///< positions per key group
  const std::uint16_t *key_scale = nullptr, *key_offset = nullptr;      ///< [group number][Hkv][D]
  const std::uint16_t *value_scale = nullptr, *value_offset = nullptr;  ///< [row number][C], strided
  std::int64_t value_group = 0;                                         ///< channels per value group
  std::int64_t value_head_stride = 0, value_row_stride = 0;  ///< strides of value_scale and value_offset
};

/// The rows of one sequence, in order of position.
struct CachedSequence {
  const std::int32_t* rows = nullptr;  ///< [count]: row numbers; nullptr: first_row + j
  std::int64_t first_row = 0;
  const std::int64_t* positions = nullptr;  ///< [count], ascending; nullptr: j
  // The members below are used with codes only.
  const std::int32_t* groups = nullptr;  ///< [position / group]: number of the key group's scales
  std::int64_t coded = 0;                ///< rows from this position on are in the tails, in f32
  const float *key_tail = nullptr, *value_tail = nullptr;  ///< [Hkv][2 * group][D], at position % (2 * group)
};

struct CacheRows {
  const CachedSequence* sequences;
  std::int64_t kv_heads;
  RowCodes codes;
};

}  // namespace heed::detail
