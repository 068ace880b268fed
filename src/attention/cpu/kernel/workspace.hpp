// The working memory of one thread: how a task's rows, packed keys and weights lie in it.
#pragma once

#include "attention/cpu/formats/bf16_dot.hpp"
#include "attention/cpu/kernel/arguments.hpp"
#include "attention/cpu/kernel/pack.hpp"
#include "attention/cpu/kernel/visible_keys.hpp"

namespace heed::detail::HEED_ISA {

using cpu::count_path;
using cpu::Path;
using cpu::Task;
using cpu::Tiling;

// Tuning of the forward pass. Sweeps on Zen 5 moved full attention by less than 2 % between 96 and 384 keys a
// KV block.
inline constexpr std::int64_t kKvBlock = 192;     // keys a KV block: packed together, weights of a block kept
inline constexpr std::int64_t kQueryBlock = 192;  // rows whose weights of a KV block are kept: 144 KiB
inline constexpr std::int64_t kTaskRows = 384;    // rows a task where packed keys are kept for the next task
inline constexpr std::int64_t kLongTaskRows = 768;         // and where each task packs them anew
inline constexpr std::int64_t kCacheBytes = 5 << 20;       // for packed keys and values
inline constexpr std::int64_t kStatisticsBytes = 3 << 19;  // for top-k lists, and for map bins
inline constexpr std::int64_t kUncachedBytes = 16 << 20;  // of a head's weights: from here on past the caches
inline constexpr int kLevelsAtOnce = kRegisters >= 32 ? 8 : 4;  // levels of lists that registers hold
// Few rows, which read keys and values in place. A row of a value tile is as wide as registers allow, so that
// a row of values is read once from end to end.
inline constexpr int kDecodeRows = 2;
inline constexpr int kDecodeVectors = kRegisters >= 32 ? 8 : 4;
inline constexpr std::int64_t kDecodeKvBlocks = 8;       // whose keys are read before their values
inline constexpr std::int64_t kAheadBytes = 6 << 10;     // how far on memory is asked for, in f32
inline constexpr std::int64_t kAheadBytes16 = 12 << 10;  // and in 16 bits

static_assert(kDecodeKvBlocks * kGroupRows <= kQueryBlock);
static_assert(kKvBlock % kPanel == 0 && kQueryBlock % kGroupRows == 0 && kTaskRows % kQueryBlock == 0);

/// A packed KV block of one key head: whose it is, where, and how large its numbers are.
struct PackedKvBlock {
  std::int64_t batch, kv_head, key;
  Measure keys;
};

/// Weights and keys, a column a row: [][kLanes]. Keys are counted within the segment; vectors hold their
/// bits.
struct CandidateColumns {
  float* weight;
  std::int32_t* key;
};

struct Workspace {
  std::int64_t depth, padded_depth, value_columns;
  std::int64_t step;
  std::int64_t packed_blocks;
  PackedKvBlock* packed_block;
  float* packed;           // [packed_blocks][kKvBlock * (depth + value_columns)]
  float* scratch;          // [kLanes][padded_depth]
  float* rounded_weights;  // [kGroupRows][kKvBlock / 2]
  float* weights;          // [kQueryBlock][kKvBlock]
  QueryRow* query_row;     // [rows]
  RowGroup* group;         // [rows / kGroupRows]
  float* query;            // [rows][padded_depth]
  float* output;           // [rows][value_columns]
  float* partial;          // the same, of one KV block, where a step is less than a KV block
  Rows rows;
  float* query_square;            // [rows]: sums of squares; with the keys' they bound the scores
  char* left_out;                 // [rows]: those that f32 cannot hold
  float* distance;                // [rows][kLanes]
  std::int64_t levels;            // entries of a list of the most attended keys: top_k, up to whole steps
  CandidateColumns lists;         // [rows / kLanes][levels][kLanes]
  CandidateColumns candidates;    // [kKvBlock][kLanes]: of a KV block, for as many rows
  float* moved;                   // the same, between levels
  std::int64_t list_rows;         // rows, up to whole vectors
  CandidateBits* candidate_bits;  // [list_rows][kKvBlock / kLanes], and a word that is read in vain
  CandidateColumns list;          // [levels]: one row's
  float* inverse;                 // [rows, up to whole vectors], of the sums, at the end
  std::int64_t bin_rows;          // rows, up to whole vectors
  float* bins;                    // [map columns][bin_rows]
  std::size_t bytes;
};

/// The queries of a task's rows: packed, or in the caller's memory.
struct QueryRows {
  const float* data;
  std::int64_t stride;
};

/// One task under way.
struct TaskState {
  const Arguments& call;
  const Task& task;
  Workspace w;
  std::int64_t rows;         // real rows
  std::int64_t padded_rows;  // to whole tiles; rows beyond `rows` repeat the last one's query row
  bool modifies_scores;      // every tile goes through modify_scores
  bool tracks_maxima;        // shifts move; off while scores are bounded
  bool keeps_statistics;     // entropy or the largest score is wanted
  bool bf16_dot;             // products are of pairs of bf16; where Workspace says floats it then holds pairs
  QueryRows queries;         // what the tiles multiply with the packed keys
  float largest_query_square;
  std::int64_t left_out = 0;  // rows
  KeyRange columns = {0, 0};  // of the map, that keys so far fell into
};

/// Lays out the memory at `base`; with base == nullptr it only counts.
inline Workspace lay_out(const Arguments& call, const Tiling& tiling, void* base) {
  Workspace w;
  const std::int64_t rows = tiling.rows;
  std::size_t used = 0;
  const auto take = [&](std::int64_t count, std::size_t size) {
    void* at = base ? static_cast<char*>(base) + used : nullptr;
    used += (static_cast<std::size_t>(count) * size + 63) / 64 * 64;
    return at;
  };
  const auto floats = [&](std::int64_t count) { return static_cast<float*>(take(count, sizeof(float))); };
  w.depth = call.head_dim;
  w.padded_depth = round_up(call.head_dim, kLanes);
  w.value_columns = round_up(call.value_dim, kLanes);
  w.step = tiling.step;
  w.packed_blocks = tiling.cached_keys / w.step;
  w.packed_block = static_cast<PackedKvBlock*>(take(w.packed_blocks, sizeof(PackedKvBlock)));
  w.packed = floats(tiling.cached_keys * (w.depth + w.value_columns));
  w.scratch = floats(kLanes * w.padded_depth);
  w.rounded_weights = floats(kHasBf16Dot ? kGroupRows * kKvBlock / 2 : 0);
  w.weights = floats(kQueryBlock * kKvBlock);
  w.query_row = static_cast<QueryRow*>(take(rows, sizeof(QueryRow)));
  w.group = static_cast<RowGroup*>(take((rows + kGroupRows - 1) / kGroupRows, sizeof(RowGroup)));
  w.query = floats(rows * w.padded_depth);
  w.output = floats(rows * w.value_columns);
  w.partial = floats(w.step < kKvBlock ? rows * w.value_columns : 0);
  w.rows.shift = floats(rows);
  w.rows.threshold = floats(rows);
  w.rows.sum = floats(rows * kLanes);
  w.rows.entropy = floats(rows * kLanes);
  w.rows.max = floats(rows * kLanes);
  w.rows.rounded = floats(kHasBf16Dot ? rows * kLanes : 0);
  w.query_square = floats(rows);
  w.left_out = static_cast<char*>(take(rows, 1));
  w.distance = floats(call.distance.data ? rows * kLanes : 0);
  const auto columns = [&](std::int64_t count) {
    return CandidateColumns{floats(count), static_cast<std::int32_t*>(take(count, sizeof(std::int32_t)))};
  };
  w.levels = round_up(call.top_k, kLevelsAtOnce);
  w.list_rows = call.top_k > 0 ? round_up(rows, kLanes) : 0;
  w.lists = columns(w.list_rows * w.levels);
  w.candidates = columns(call.top_k > 0 ? kKvBlock * kLanes : 0);
  w.moved = floats(call.top_k > 0 ? kKvBlock * kLanes : 0);
  w.list = columns(w.levels);
  w.candidate_bits =
      static_cast<CandidateBits*>(take(w.list_rows * kKvBlock / kLanes + 8, sizeof(CandidateBits)));
  w.rows.entry_threshold = floats(w.list_rows);
  w.rows.candidate_bits = call.top_k > 0 ? w.candidate_bits : nullptr;
  w.rows.candidate_ld = kKvBlock / kLanes;
  w.inverse = floats(round_up(rows, kLanes));
  w.bin_rows = call.map_columns > 0 ? round_up(rows, kLanes) : 0;
  w.bins = floats(w.bin_rows * call.map_columns);
  w.bytes = used;
  return w;
}

inline std::int64_t clamp_rows(std::int64_t rows, std::int64_t bytes_each, std::int64_t budget) {
  const std::int64_t fit = budget / (bytes_each > 0 ? bytes_each : 1) / kGroupRows * kGroupRows;
  return larger(kGroupRows, smaller(rows, fit));
}

inline Tiling plan(const Arguments& call) {
  const std::int64_t key_bytes =
      static_cast<std::int64_t>(sizeof(float)) * (call.head_dim + round_up(call.value_dim, kLanes));
  const std::int64_t all_keys = round_up(larger(1, call.key_length), kKvBlock);
  const bool cached = all_keys <= kCacheBytes / key_bytes;
  std::int64_t rows = cached ? kTaskRows : kLongTaskRows;
  rows = smaller(rows, round_up(larger(1, call.query_length * call.group), kGroupRows));
  rows = clamp_rows(rows, 8 * round_up(call.top_k, kLevelsAtOnce), kStatisticsBytes);
  // Where no packed keys are kept, bins may have their room.
  const std::int64_t spare = cached ? 0 : kCacheBytes - kLongTaskRows * key_bytes;
  rows = clamp_rows(rows, 4 * call.map_columns, larger(kStatisticsBytes, spare));
  // Few rows read keys and values about as fast as memory gives them. They are packed a panel at a time,
  // which stays in the first cache, while the next is on its way.
  const bool narrow = rows <= kGroupRows;
  Tiling tiling;
  tiling.rows = rows;
  tiling.step = narrow ? kPanel : kKvBlock;
  tiling.cached_keys = narrow ? kPanel : cached ? all_keys : kKvBlock;
  tiling.bytes = lay_out(call, tiling, nullptr).bytes;
  return tiling;
}

/// Forgets packed KV blocks: the memory may hold those of another call.
inline void reset(const Arguments& call, const Tiling& tiling, void* workspace) {
  const Workspace w = lay_out(call, tiling, workspace);
  for (std::int64_t s = 0; s < w.packed_blocks; ++s) w.packed_block[s].key = -1;
}

struct KvBlock {
  const float* keys;          // panels
  const float* values;        // column panels, or the rows in the caller's memory
  std::int64_t value_stride;  // 0: packed; else floats from one key's values to the next's
  std::int64_t count;         // keys in it
  PackedKvBlock measured;
  BlockPrefetch next_keys;    // shared among the task's rows, times the panels of a KV block
  BlockPrefetch next_values;  // and times the panels of values

  /// The values of the panel of `vectors` vectors from column `column` on, and their stride.
  const float* panel(std::int64_t column) const {
    return value_stride == 0 ? values + column * count : values + column;
  }
  std::int64_t stride(std::int64_t vectors) const {
    return value_stride == 0 ? vectors * kLanes : value_stride;
  }
};

/// Values that tiles can read where they lie: rows of whole vectors, close together.
inline bool in_place(const Input& tensor, std::int64_t width) {
  return tensor.type == Type::f32 && tensor.stride[3] == 1 && width % kLanes == 0 &&
         tensor.stride[2] < 2 * width && tensor.stride[2] > 0;
}

/// `bytes` in equal shares; few rows do not fetch it all.
inline std::int64_t share_of(std::int64_t bytes, std::int64_t rows) {
  constexpr std::int64_t kUnit = 16;
  constexpr std::int64_t kMost = 128;
  return smaller(kMost, round_up(bytes / rows, kUnit));
}

/// The next KV block, as far as it is packed already or read in place.
inline void find_prefetch(KvBlock& kv_block, const Task& task, const Workspace& w) {
  const std::int64_t rows = round_up(task.head_count * (task.row_end - task.row_begin), kTileRows);
  const std::int64_t panels = (w.value_columns / kLanes + kValueVectors - 1) / kValueVectors;
  const PackedKvBlock& packed_block = kv_block.measured;
  const std::int64_t index = ((packed_block.key - task.key_begin) / w.step + 1) % w.packed_blocks;
  const PackedKvBlock& next = w.packed_block[index];
  const bool packed = next.key == packed_block.key + w.step && next.batch == packed_block.batch &&
                      next.kv_head == packed_block.kv_head;
  const float* keys = w.packed + index * w.step * (w.depth + w.value_columns);
  if (packed)
    kv_block.next_keys = {reinterpret_cast<const char*>(keys),
                          share_of(4 * w.step * w.depth, rows * (kKvBlock / kPanel))};
  const std::int64_t value_share = share_of(4 * w.step * w.value_columns, rows * panels);
  if (kv_block.value_stride > 0)
    kv_block.next_values = {reinterpret_cast<const char*>(kv_block.values + w.step * kv_block.value_stride),
                            value_share};
  else if (packed)
    kv_block.next_values = {reinterpret_cast<const char*>(keys + w.step * w.depth), value_share};
}

/// The packed keys [key, key + step) of a task's key head, `key` counted within the segment. f32 keys carry
/// scale * log2(e), which spares the queries a copy; pairs are as they were, and their products are scaled.
template <bool kBf16Dot>
KvBlock packed_kv_block(const Arguments& call, const Task& task, const Workspace& w, std::int64_t key) {
  const std::int64_t absolute_key = task.key_begin + key;
  const std::int64_t kv_head = task.head_begin / call.group;
  const std::int64_t index = w.packed_blocks == 1 ? 0 : key / w.step % w.packed_blocks;
  const std::int64_t count = smaller(w.step, task.key_end - absolute_key);
  float* keys = w.packed + index * w.step * (w.depth + w.value_columns);
  float* values = keys + w.step * w.depth;
  PackedKvBlock& packed_block = w.packed_block[index];
  const std::int64_t value_at = offset_of(call.value.stride, task.batch, kv_head, absolute_key);
  const bool decode_values = !kBf16Dot && w.step == kKvBlock && in_place(call.value, call.value_dim);
  if (packed_block.key != absolute_key || packed_block.batch != task.batch ||
      packed_block.kv_head != kv_head) {
    packed_block.batch = task.batch;
    packed_block.kv_head = kv_head;
    packed_block.key = absolute_key;
    if (w.packed_blocks == 1 && w.step == kKvBlock && call.key_length > kKvBlock)
      count_path(call.paths, Path::repacked);
    const std::int64_t key_at = offset_of(call.key.stride, task.batch, kv_head, absolute_key);
    if constexpr (kBf16Dot) {
      packed_block.keys =
          pack_keys_bf16_dot<kBf16Dot>(call.key, key_at, count, w.depth, keys, w.scratch, w.padded_depth);
      if (call.output.data)
        pack_values_bf16_dot<kBf16Dot>(call.value, value_at, count, call.value_dim, values);
    } else {
      // In narrow steps the values are fetched while keys are packed, and then the next keys.
      const bool ahead = w.step < kKvBlock;
      const bool with_values = call.output.data != nullptr;
      packed_block.keys =
          pack_keys(call.key, key_at, count, w.depth, call.scale, keys, w.scratch, w.padded_depth,
                    RowPrefetch{ahead && with_values ? &call.value : nullptr, value_at, call.value_dim});
      if (with_values && !decode_values)
        pack_values(call.value, value_at, count, call.value_dim, values,
                    RowPrefetch{ahead ? &call.key : nullptr, key_at + w.step * call.key.stride[2], w.depth});
    }
  }
  KvBlock kv_block = {keys, values, 0, count, packed_block, {}, {}};
  if (decode_values) {
    kv_block.values = static_cast<const float*>(call.value.data) + value_at;
    kv_block.value_stride = call.value.stride[2];
  }
  if (!kBf16Dot && w.step == kKvBlock && absolute_key + w.step < task.key_end)
    find_prefetch(kv_block, task, w);
  return kv_block;
}

}  // namespace heed::detail::HEED_ISA
