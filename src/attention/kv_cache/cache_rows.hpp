// The rows of a KV cache as kernels see them: where each row of a sequence lies, where it stands, and what
// its codes mean. Plain data, so that a target compiled for one instruction set shares no inline function
// with code that must run anywhere.
#pragma once

#include <cstdint>

namespace heed::detail {

/// How a cache keeps its rows.
enum class RowFormat : std::uint8_t {
  floats,  ///< f32, bf16 or f16, as the tensor says
  int8,    ///< x = scale * code, codes -127 to 127
  int4,    ///< x = scale * code + offset, codes 0 to 15; the even element in the low half of a byte
  e4m3,    ///< x = scale * code, codes of 1 sign, 4 exponent and 3 fraction bits
};

/// Scales and offsets are bf16. An element x of a key has those of its channel and group of positions, an
/// element of a value those of its row and group of channels.
struct RowCodes {
  RowFormat format = RowFormat::floats;
  std::int64_t group = 0, group_log2 = 0;                               ///< positions of a group of keys
  const std::uint16_t *key_scale = nullptr, *key_offset = nullptr;      ///< [group's number][Hkv][D]
  const std::uint16_t *value_scale = nullptr, *value_offset = nullptr;  ///< [row number][C], strided
  std::int64_t value_group = 0;                                         ///< channels of a group of values
  std::int64_t value_head_stride = 0, value_row_stride = 0;             ///< of value_scale and value_offset
};

/// The rows of one sequence, in order of position.
struct CachedSequence {
  const std::int32_t* rows = nullptr;  ///< [count]: row numbers; nullptr: first_row + j
  std::int64_t first_row = 0;
  const std::int64_t* positions = nullptr;  ///< [count], ascending; nullptr: j
  // Of codes alone:
  const std::int32_t* groups = nullptr;  ///< [position / group]: which scales its keys have
  std::int64_t coded = 0;                ///< rows at this position and beyond are in the tails, in f32
  const float *key_tail = nullptr, *value_tail = nullptr;  ///< [Hkv][2 * group][D], at position % (2 * group)
};

struct CacheRows {
  const CachedSequence* sequences;
  std::int64_t kv_heads;
  RowCodes codes;
};

}  // namespace heed::detail
