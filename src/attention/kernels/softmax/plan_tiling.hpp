// Decisions about a call that depend on the unit: whether matrix tiles take it, how many rows a task has, and
// the path to its keys.
#pragma once

#include "attention/kernels/softmax/workspace.hpp"

namespace heed::detail::HEED_ISA {

/// Whether matrix tiles read keys in place, as rows of whole steps. Only for tasks of one group of rows.
inline bool tiles_read_keys_in_place(const Arguments& call, std::int64_t task_rows) {
  return kHasMatrixTiles && UnitFormat::kParts == 1 && task_rows <= kGroupRows && call.key.stride[3] == 1 &&
         call.head_dim % (2 * kLanes) == 0;
}

/// Whether tile registers read keys and values in place, as rows of whole steps (decode/decode_tiles.hpp).
inline bool tiles_decode(const Arguments& call) {
  return kHasMatrixTiles && MatrixTiles::kHasRegisters && UnitFormat::kParts == 1 && kHasForward &&
         call.most_rows * call.group <= kTileDecodeRows && call.dropout.threshold == 0 &&
         call.key.dtype == kMatrixType &&
         (call.cache == nullptr || call.cache->codes.format == RowFormat::floats) &&
         call.key.stride[3] == 1 && call.head_dim % (2 * kLanes) == 0 && call.value.stride[3] == 1 &&
         call.value_dim % (2 * kLanes) == 0;
}

/// Least number of rows per key head for a unit of matrix tiles: enough to fill tiles. For f32, enough to
/// make splitting keys and values worth while. (Tests run the emulation with fewer rows, too.)
inline constexpr std::int64_t kMatrixLeastRows = UnitFormat::kParts == 1 || kEmulatesMatrixTiles ? 13 : 128;
/// The same if keys need not be packed.
inline constexpr std::int64_t kMatrixLeastRowsInPlace = 5;
inline bool fills_matrix_tiles(const Arguments& call) {
  const std::int64_t rows = call.most_rows * call.group;
  return kHasMatrixTiles && call.query.dtype == kMatrixType &&
         (tiles_decode(call) ||
          rows >= (tiles_read_keys_in_place(call, rows) ? kMatrixLeastRowsInPlace : kMatrixLeastRows));
}

inline std::int64_t clamp_rows(std::int64_t rows, std::int64_t bytes_each, std::int64_t budget) {
  const std::int64_t fit = budget / (bytes_each > 0 ? bytes_each : 1) / kGroupRows * kGroupRows;
  return larger(kGroupRows, smaller(rows, fit));
}

/// Keys whose weights fit in kTaskWeightsBytes, for a task of `rows` rows.
constexpr std::int64_t most_kept_keys(std::int64_t rows) {
  return kTaskWeightsBytes / (rows * static_cast<std::int64_t>(sizeof(float)));
}

/// The most rows of a task. If it keeps their weights, they are of one head.
inline std::int64_t most_task_rows(const Arguments& call, bool cached) {
  if (!call.keeps_task_weights) return cached ? kTaskRows : kLongTaskRows;
  return smaller(round_up(call.most_rows, kGroupRows),
                 call.key_length <= most_kept_keys(kTaskRows) ? kTaskRows : kQueryBlock);
}

/// Whether rows are few, and keys and values are whole vectors that can be read in place.
inline bool decodes_in_place(const Arguments& call, std::int64_t step) {
  return step < kKvBlock && call.dropout.threshold == 0 &&
         rows_of(call.key, 0, 0, 0).has_whole_vectors(call.head_dim) &&
         rows_of(call.value, 0, 0, 0).has_whole_vectors(call.value_dim);
}

#if defined(HEED_BYTE_DOTS)
inline constexpr bool kHasByteDots = true;
#else
inline constexpr bool kHasByteDots = false;
#endif
/// Channels of a step of such products (decode/digits.hpp); codes are read as whole steps.
inline constexpr std::int64_t kCodeChannels = 32;

/// Whether a cache's codes are multiplied as bytes.
inline bool multiplies_digits(const Arguments& call) {
  if (!kHasByteDots || !call.has_byte_dots || call.cache == nullptr) return false;
  const RowCodes& codes = call.cache->codes;
  return (codes.format == RowFormat::int8 || codes.format == RowFormat::int4) &&
         codes.value_group % kCodeChannels == 0 && call.head_dim % kCodeChannels == 0 &&
         call.value_dim % kCodeChannels == 0;
}

/// The way to the keys of a call that is packed `step` keys at a time, if it is packed.
inline Path path_of_keys(const Arguments& call, std::int64_t step) {
  if (decodes_in_place(call, step))
    return UnitFormat::kElements == 2 ? Path::decode_pairs
           : multiplies_digits(call)  ? Path::decode_digits
                                      : Path::decode;
  if (step < kKvBlock) return Path::packed_panels;
  return UnitFormat::kElements == 1 || UnitFormat::kParts > 1 ? Path::packed_kv_blocks : Path::packed_pairs;
}

/// Keys that matrix tiles go over for one group of rows after the other. Their packed keys and values stay in
/// the second-level cache. Masks, distance and map take one KV block after the other for all rows.
inline std::int64_t chunk_keys(const Arguments& call) {
  const std::int64_t key_bytes = 2 * UnitFormat::kParts * (call.head_dim + call.value_dim);
  const bool one = has_masks(call) || has_panel_statistics(call);
  return kKvBlock * (one ? 1 : larger(1, smaller(kMostChunkBlocks, kChunkBytes / (kKvBlock * key_bytes))));
}

inline Tiling plan_tiling(const Arguments& call) {
  const std::int64_t key_bytes =
      static_cast<std::int64_t>(sizeof(float)) * (call.head_dim + round_up(call.value_dim, kLanes));
  const std::int64_t all_keys = round_up(larger(1, call.key_length), kKvBlock);
  const std::int64_t all_rows = round_up(larger(1, call.most_rows * call.group), kGroupRows);
  Tiling tiling;
  const bool by_tiles = tiles_decode(call);
  const bool keys_in_place = !by_tiles && tiles_read_keys_in_place(call, all_rows);
  const std::int64_t cache_bytes = call.keeps_task_weights ? kLongCacheBytes : kCacheBytes;
  const bool cached = all_keys <= cache_bytes / key_bytes && !keys_in_place && !by_tiles;
  std::int64_t rows = smaller(most_task_rows(call, cached), all_rows);
  rows = clamp_rows(rows, 8 * round_up(call.top_k, kLevelsAtOnce), kStatisticsBytes);
  // If no packed keys are kept, bins may use their memory.
  const std::int64_t spare = cached ? 0 : kCacheBytes - kLongTaskRows * key_bytes;
  rows = clamp_rows(rows, 4 * call.map_size.columns, larger(kStatisticsBytes, spare));
  // Few rows read keys and values about as fast as memory delivers them. These are packed one panel at a
  // time, which stays in the first-level cache while the next one is prefetched.
  const bool narrow = !kHasMatrixTiles && rows <= kGroupRows;
  tiling.rows = rows;
  tiling.step = narrow || by_tiles ? kPanel : kKvBlock;
  tiling.path = by_tiles        ? Path::decode_tiles
                : keys_in_place ? Path::matrix_keys
                                : path_of_keys(call, tiling.step);
  tiling.cached_keys = narrow                              ? kPanel
                       : by_tiles                          ? kKvBlock
                       : cached                            ? all_keys
                       : kHasMatrixTiles && !keys_in_place ? smaller(all_keys, chunk_keys(call))
                                                           : kKvBlock;
  tiling.bytes = lay_out(call, tiling, nullptr).bytes;
  Memory state(nullptr);
  lay_out_state(parts_of(call, tiling), state);
  tiling.state_bytes = state.bytes();
  return tiling;
}

}  // namespace heed::detail::HEED_ISA
