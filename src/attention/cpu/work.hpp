// The working memory of one thread: how a task's rows, packed keys and weights lie in it.
#pragma once

#include "attention/cpu/call.hpp"
#include "attention/cpu/pack.hpp"
#include "attention/cpu/pack_pairs.hpp"
#include "attention/cpu/sites.hpp"

namespace heed::detail::HEED_ISA {

using cpu::count_path;
using cpu::Path;
using cpu::Task;
using cpu::Tiling;

// Tuning of the forward pass. Sweeps on Zen 5 moved full attention by less than 2 % between 96 and 384 keys a
// chunk.
inline constexpr std::int64_t kChunk = 192;      // keys a chunk: packed together, weights of a block kept
inline constexpr std::int64_t kBlockRows = 192;  // rows whose weights of a chunk are kept: 144 KiB
inline constexpr std::int64_t kTaskRows = 384;   // rows a task where packed keys are kept for the next task
inline constexpr std::int64_t kLongTaskRows = 768;        // and where each task packs them anew
inline constexpr std::int64_t kCacheBytes = 5 << 20;      // for packed keys and values
inline constexpr std::int64_t kObserverBytes = 3 << 19;   // for top-k lists, and for map bins
inline constexpr std::int64_t kUncachedBytes = 16 << 20;  // of a head's weights: from here on past the caches
inline constexpr std::int64_t kMostTopK = 1024;           // longer lists go to the reference
inline constexpr int kLevelsAtOnce = kRegisters >= 32 ? 8 : 4;  // levels of lists that registers hold
inline constexpr std::int64_t kMostMapColumns = kObserverBytes / 4 / kGroupRows;
// Few rows, which read keys and values in place. A row of a value tile is as wide as registers allow, so that
// a row of values is read once from end to end.
inline constexpr int kDirectRows = 2;
inline constexpr int kDirectVectors = kRegisters >= 32 ? 8 : 4;
inline constexpr std::int64_t kDirectChunks = 8;         // whose keys are read before their values
inline constexpr std::int64_t kAheadBytes = 6 << 10;     // how far on memory is asked for, in f32
inline constexpr std::int64_t kAheadBytes16 = 12 << 10;  // and in 16 bits

static_assert(kDirectChunks * kGroupRows <= kBlockRows);
static_assert(kChunk % kPanel == 0 && kBlockRows % kGroupRows == 0 && kTaskRows % kBlockRows == 0);

/// A packed chunk of one key head: whose it is, where, and how large its numbers are.
struct Slot {
  std::int64_t batch, kv_head, key;
  Measure keys;
};

/// Weights and keys, a column a row: [][kLanes]. Keys are counted within the segment; vectors hold their
/// bits.
struct Columns {
  float* weight;
  std::int32_t* key;
};

struct Work {
  std::int64_t depth, padded_depth, value_columns;
  std::int64_t step;
  std::int64_t slots;
  Slot* slot;
  float* packed;        // [slots][kChunk * (depth + value_columns)]
  float* scratch;       // [kLanes][padded_depth]
  float* weight_pairs;  // [kGroupRows][kChunk / 2]
  float* weights;       // [kBlockRows][kChunk]
  Site* site;           // [rows]
  Group* group;         // [rows / kGroupRows]
  float* query;         // [rows][padded_depth]
  float* output;        // [rows][value_columns]
  float* partial;       // the same, of one chunk, where a step is less than a chunk
  Rows rows;
  float* query_square;    // [rows]: sums of squares; with the keys' they bound the scores
  char* left_out;         // [rows]: those that f32 cannot hold
  float* distance;        // [rows][kLanes]
  std::int64_t levels;    // entries of a list of the most attended keys: top_k, up to whole steps
  Columns lists;          // [rows / kLanes][levels][kLanes]
  Columns noted;          // [kChunk][kLanes]: of a chunk, for as many rows
  float* moved;           // the same, between levels
  std::int64_t hit_rows;  // rows, up to whole vectors
  Hits* hits;             // [hit_rows][kChunk / kLanes], and a word that is read in vain
  Columns list;           // [levels]: one row's
  float* inverse;         // [rows, up to whole vectors], of the sums, at the end
  std::int64_t bin_rows;  // rows, up to whole vectors
  float* bins;            // [map columns][bin_rows]
  std::size_t bytes;
};

/// The queries of a task's rows: packed, or in the caller's memory.
struct QueryRows {
  const float* data;
  std::int64_t stride;
};

/// One task under way.
struct Run {
  const Call& call;
  const Task& task;
  Work w;
  std::int64_t rows;         // real rows
  std::int64_t padded_rows;  // to whole tiles; rows beyond `rows` repeat the last one's site
  bool transforms;           // every tile goes through transform_row
  bool tracked;              // shifts move; off while scores are bounded
  bool observed;             // entropy or the largest score is wanted
  bool pairs;                // products are of pairs of bf16; where Work says floats it holds pairs then
  QueryRows queries;         // what the tiles multiply with the packed keys
  float largest_query_square;
  std::int64_t left_out = 0;  // rows
  KeyRange columns = {0, 0};  // of the map, that keys so far fell into
};

/// Lays out the memory at `base`; with base == nullptr it only counts.
inline Work lay_out(const Call& call, const Tiling& tiling, void* base) {
  Work w;
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
  w.slots = tiling.cached_keys / w.step;
  w.slot = static_cast<Slot*>(take(w.slots, sizeof(Slot)));
  w.packed = floats(tiling.cached_keys * (w.depth + w.value_columns));
  w.scratch = floats(kLanes * w.padded_depth);
  w.weight_pairs = floats(kHasPairs ? kGroupRows * kChunk / 2 : 0);
  w.weights = floats(kBlockRows * kChunk);
  w.site = static_cast<Site*>(take(rows, sizeof(Site)));
  w.group = static_cast<Group*>(take((rows + kGroupRows - 1) / kGroupRows, sizeof(Group)));
  w.query = floats(rows * w.padded_depth);
  w.output = floats(rows * w.value_columns);
  w.partial = floats(w.step < kChunk ? rows * w.value_columns : 0);
  w.rows.shift = floats(rows);
  w.rows.threshold = floats(rows);
  w.rows.sum = floats(rows * kLanes);
  w.rows.entropy = floats(rows * kLanes);
  w.rows.max = floats(rows * kLanes);
  w.rows.rounded = floats(kHasPairs ? rows * kLanes : 0);
  w.query_square = floats(rows);
  w.left_out = static_cast<char*>(take(rows, 1));
  w.distance = floats(call.distance.data ? rows * kLanes : 0);
  const auto columns = [&](std::int64_t count) {
    return Columns{floats(count), static_cast<std::int32_t*>(take(count, sizeof(std::int32_t)))};
  };
  w.levels = round_up(call.top_k, kLevelsAtOnce);
  w.hit_rows = call.top_k > 0 ? round_up(rows, kLanes) : 0;
  w.lists = columns(w.hit_rows * w.levels);
  w.noted = columns(call.top_k > 0 ? kChunk * kLanes : 0);
  w.moved = floats(call.top_k > 0 ? kChunk * kLanes : 0);
  w.list = columns(w.levels);
  w.hits = static_cast<Hits*>(take(w.hit_rows * kChunk / kLanes + 8, sizeof(Hits)));
  w.rows.entry = floats(w.hit_rows);
  w.rows.hits = call.top_k > 0 ? w.hits : nullptr;
  w.rows.hits_ld = kChunk / kLanes;
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

inline Tiling plan(const Call& call) {
  const std::int64_t key_bytes =
      static_cast<std::int64_t>(sizeof(float)) * (call.head_dim + round_up(call.value_dim, kLanes));
  const std::int64_t all_keys = round_up(larger(1, call.key_length), kChunk);
  const bool cached = all_keys <= kCacheBytes / key_bytes;
  std::int64_t rows = cached ? kTaskRows : kLongTaskRows;
  rows = smaller(rows, round_up(larger(1, call.query_length * call.group), kGroupRows));
  rows = clamp_rows(rows, 8 * round_up(call.top_k, kLevelsAtOnce), kObserverBytes);
  // Where no packed keys are kept, bins may have their room.
  const std::int64_t spare = cached ? 0 : kCacheBytes - kLongTaskRows * key_bytes;
  rows = clamp_rows(rows, 4 * call.map_columns, larger(kObserverBytes, spare));
  // Few rows read keys and values about as fast as memory gives them. They are packed a panel at a time,
  // which stays in the first cache, while the next is on its way.
  const bool narrow = rows <= kGroupRows;
  Tiling tiling;
  tiling.rows = rows;
  tiling.step = narrow ? kPanel : kChunk;
  tiling.cached_keys = narrow ? kPanel : cached ? all_keys : kChunk;
  tiling.bytes = lay_out(call, tiling, nullptr).bytes;
  return tiling;
}

/// Forgets packed chunks: the memory may hold those of another call.
inline void reset(const Call& call, const Tiling& tiling, void* workspace) {
  const Work w = lay_out(call, tiling, workspace);
  for (std::int64_t s = 0; s < w.slots; ++s) w.slot[s].key = -1;
}

struct Chunk {
  const float* keys;          // panels
  const float* values;        // column panels, or the rows in the caller's memory
  std::int64_t value_stride;  // 0: packed; else floats from one key's values to the next's
  std::int64_t count;         // keys in it
  Slot measured;
  Upcoming next_keys;    // shared among the task's rows, times the panels of a chunk
  Upcoming next_values;  // and times the panels of values

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

/// The chunk after `chunk`, as far as it is packed already or read in place.
inline void find_upcoming(Chunk& chunk, const Task& task, const Work& w) {
  const std::int64_t rows = round_up(task.head_count * (task.row_end - task.row_begin), kTileRows);
  const std::int64_t panels = (w.value_columns / kLanes + kValueVectors - 1) / kValueVectors;
  const Slot& slot = chunk.measured;
  const std::int64_t index = ((slot.key - task.key_begin) / w.step + 1) % w.slots;
  const Slot& next = w.slot[index];
  const bool packed =
      next.key == slot.key + w.step && next.batch == slot.batch && next.kv_head == slot.kv_head;
  const float* keys = w.packed + index * w.step * (w.depth + w.value_columns);
  if (packed)
    chunk.next_keys = {reinterpret_cast<const char*>(keys),
                       share_of(4 * w.step * w.depth, rows * (kChunk / kPanel))};
  const std::int64_t value_share = share_of(4 * w.step * w.value_columns, rows * panels);
  if (chunk.value_stride > 0)
    chunk.next_values = {reinterpret_cast<const char*>(chunk.values + w.step * chunk.value_stride),
                         value_share};
  else if (packed)
    chunk.next_values = {reinterpret_cast<const char*>(keys + w.step * w.depth), value_share};
}

/// The packed keys [key, key + step) of a task's key head, `key` counted within the segment. f32 keys carry
/// scale * log2(e), which spares the queries a copy; pairs are as they were, and their products are scaled.
template <bool kPairs>
Chunk packed_chunk(const Call& call, const Task& task, const Work& w, std::int64_t key) {
  const std::int64_t absolute_key = task.key_begin + key;
  const std::int64_t kv_head = task.head_begin / call.group;
  const std::int64_t index = w.slots == 1 ? 0 : key / w.step % w.slots;
  const std::int64_t count = smaller(w.step, task.key_end - absolute_key);
  float* keys = w.packed + index * w.step * (w.depth + w.value_columns);
  float* values = keys + w.step * w.depth;
  Slot& slot = w.slot[index];
  const std::int64_t value_at = offset_of(call.value.stride, task.batch, kv_head, absolute_key);
  const bool direct_values = !kPairs && w.step == kChunk && in_place(call.value, call.value_dim);
  if (slot.key != absolute_key || slot.batch != task.batch || slot.kv_head != kv_head) {
    slot.batch = task.batch;
    slot.kv_head = kv_head;
    slot.key = absolute_key;
    if (w.slots == 1 && w.step == kChunk && call.key_length > kChunk) count_path(call.paths, Path::repacked);
    const std::int64_t key_at = offset_of(call.key.stride, task.batch, kv_head, absolute_key);
    if constexpr (kPairs) {
      slot.keys = pack_key_pairs<kPairs>(call.key, key_at, count, w.depth, keys, w.scratch, w.padded_depth);
      if (call.output.data) pack_value_pairs<kPairs>(call.value, value_at, count, call.value_dim, values);
    } else {
      // In narrow steps the values are fetched while keys are packed, and then the next keys.
      const bool ahead = w.step < kChunk;
      const bool with_values = call.output.data != nullptr;
      slot.keys = pack_keys(call.key, key_at, count, w.depth, call.scale, keys, w.scratch, w.padded_depth,
                            Ahead{ahead && with_values ? &call.value : nullptr, value_at, call.value_dim});
      if (with_values && !direct_values)
        pack_values(call.value, value_at, count, call.value_dim, values,
                    Ahead{ahead ? &call.key : nullptr, key_at + w.step * call.key.stride[2], w.depth});
    }
  }
  Chunk chunk = {keys, values, 0, count, slot, {}, {}};
  if (direct_values) {
    chunk.values = static_cast<const float*>(call.value.data) + value_at;
    chunk.value_stride = call.value.stride[2];
  }
  if (!kPairs && w.step == kChunk && absolute_key + w.step < task.key_end) find_upcoming(chunk, task, w);
  return chunk;
}

}  // namespace heed::detail::HEED_ISA
