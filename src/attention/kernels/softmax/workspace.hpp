// The working memory of one thread: the layout of a task's rows, packed keys and weights. plan_tiling.hpp
// chooses its sizes.
#pragma once

#include "attention/kernels/shared/arguments.hpp"
#include "attention/kernels/shared/coded_rows.hpp"
#include "attention/kernels/shared/masked_rows.hpp"
#include "attention/kernels/shared/visible_keys.hpp"
#include "attention/kernels/softmax/score_modifiers.hpp"
#include "attention/kernels/softmax/tiles.hpp"

namespace heed::detail::HEED_ISA {

using cpu::decodes;
using cpu::Task;
using cpu::Tiling;

inline constexpr auto kAllLanes = static_cast<std::uint32_t>((std::uint64_t{1} << kLanes) - 1);  // bits_of()

// Tuning of the forward pass. Sweeps on Zen 5 moved full attention by less than 2 % between 96 and 384 keys
// a KV block, which are packed together. With matrix tiles of bf16, the weights of two groups stay in the
// first-level cache beside scores and queries.
inline constexpr std::int64_t kKvBlock = kHasMatrixTiles && UnitFormat::kParts == 1 ? 128 : 192;
// Rows whose weights of a KV block are kept: 144 KiB. With matrix tiles, one group of rows.
inline constexpr std::int64_t kQueryBlock = kHasMatrixTiles ? kGroupRows : 192;
inline constexpr std::int64_t kTaskRows = 384;      // rows per task if packed keys are kept for the next task
inline constexpr std::int64_t kLongTaskRows = 768;  // rows per task if each task repacks the keys
inline constexpr std::int64_t kCacheBytes = 5 << 20;    // for packed keys and values
inline constexpr std::int64_t kChunkBytes = 512 << 10;  // of them, that matrix tiles go over at a time
inline constexpr std::int64_t kMostChunkBlocks = 16;
// The same if tasks keep their weights, and are therefore short. Reading packed keys from memory, prefetched
// in time, costs less than repacking them for each task.
inline constexpr std::int64_t kLongCacheBytes = 16 << 20;
inline constexpr std::int64_t kTaskWeightsBytes = 48 << 20;  // for these weights
inline constexpr std::int64_t kStatisticsBytes = 3 << 19;    // for top-k lists, and for map bins
inline constexpr std::int64_t kUncachedBytes = 16 << 20;     // a larger weights matrix bypasses caches
// Few rows, which read keys and values in place. With 32 registers, a row of a value tile is as wide as they
// allow, so that a row of values is read once from end to end. With 16 registers, it has more rows, so that
// each value is loaded only once.
inline constexpr int kDecodeRows = kRegisters >= 32 ? 2 : kTileRows;
constexpr int decode_vectors(int rows) { return kRegisters >= 32 ? 8 : rows >= 4 ? 2 : 4; }
inline constexpr std::int64_t kDecodeKvBlocks = 8;  // KV blocks whose keys are read before their values
// Few rows that tile registers decode (decode/decode_tiles.hpp), and the tiles of a result side by side: a
// tile product takes 16 cycles, its result 52.
inline constexpr std::int64_t kTileDecodeRows = 12, kTileFloats = 256;
inline constexpr int kTilesAtOnce = 4;
inline constexpr std::int64_t kKeysAhead = 32;  // how many keys ahead matrix tiles prefetch

static_assert(kHasMatrixTiles || kDecodeKvBlocks * kGroupRows <= kQueryBlock);
static_assert(kDecodeKvBlocks * kKvBlock <= kMaxStepPanels * kPanel);
static_assert(cpu::kSpan % (kDecodeKvBlocks * kKvBlock) == 0);
static_assert(kKvBlock % kPanel == 0 && (!kHasMatrixTiles || kPanel % (2 * kLanes) == 0));
static_assert(kQueryBlock % kGroupRows == 0 && kTaskRows % kQueryBlock == 0);

/// A packed KV block of one key head: its identity, and measurements of its numbers.
struct PackedKvBlock {
  std::int64_t batch, kv_head, key;
  Measure keys;
  float value_factor;  // factor of the values' products
};

struct Workspace {
  std::int64_t depth, padded_depth, value_columns;
  std::int64_t query_lanes, key_lanes, value_lanes;  // lanes of a packed query, key, and value
  std::int64_t step;
  std::int64_t packed_blocks;
  PackedKvBlock* packed_block;
  float* packed;         // [packed_blocks][kKvBlock * (key_lanes + value_lanes)]
  float* scratch;        // [kLanes][query_lanes]
  float* cached;         // [kKvBlock][depth or value columns], for a cache with unevenly spaced or coded rows
  float* weight_parts;   // [2][parts][kKvBlock / 32][kGroupRows][kLanes], for pairs of bf16: of two groups
  float* product;        // [kGroupRows][value_columns], for matrix tiles with several parts
  float* query_columns;  // [rows][key_lanes], for matrix tiles that read keys in place
  float* key_scores;     // [kKvBlock][kGroupRows], likewise
  float* weights;        // [kQueryBlock][kKvBlock]
  QueryRow* query_row;   // [rows]
  RowGroup* group;       // [rows / kGroupRows]
  std::uint8_t* visible;  // [rows][visible_ld] for a step, if masks leave rows whose keys are no range
  std::int64_t visible_ld;
  float* query;          // [rows][query_lanes]
  float* query_square;   // [rows]: sums of squares; together with the keys' they bound the scores
  RowDecay row_decay;    // [rows], if tiles add the decay
  SoftmaxState softmax;  // of the current span
  SoftmaxState merged;   // of the spans before it, if keys exceed one span
  float* partial;        // like softmax.output, for one KV block, if a step is less than a KV block
  // Top-k:
  std::int64_t list_rows;         // rows, rounded up to whole vectors
  CandidateColumns candidates;    // [kKvBlock][kLanes], for a KV block and kLanes rows
  WaitingCandidates waiting;      // of the current group, by matrix tiles
  CandidateBits* marks;           // [2][kPanelVectors][kGroupRows], of its last two panels
  float* moved;                   // same shape; carries entries between levels
  CandidateBits* candidate_bits;  // [list_rows][kKvBlock / kLanes], and a word that gather() may read
  CandidateColumns list;          // [levels], for one row
  // The map:
  float* inverse;         // [rows, rounded up to whole vectors]: 1 / the final sums
  std::int64_t bin_rows;  // rows, rounded up to whole vectors
  float* bins;            // [map columns][bin_rows]
  float* carried_bins;    // [bin_rows]: earlier spans' bins of the column that the next span may share
  std::size_t bytes;
};

/// The queries of a task's rows, packed or in the caller's memory.
struct QueryRows {
  const float* data;
  std::int64_t stride;
};

/// The constants of a task.
struct TaskContext {
  const Arguments& call;
  const Task& task;
  Workspace w;
  const KvSource kv;
  const std::int64_t rows;         // real rows
  const std::int64_t padded_rows;  // rounded up to whole tiles; rows beyond `rows` repeat the last query row
  const bool modifies_scores;      // tiles go through modify_scores, unless they add the decay
  const bool adds_decay;           // tiles of whole panels add the decay themselves; false without keys
  const bool keeps_statistics;     // entropy, the largest score or top-k is wanted
  const bool keys_in_place;        // matrix tiles read keys in place (matrix_keys.hpp)
};

/// A task in progress.
struct TaskState : TaskContext {
  bool tracks_maxima = true;  // some row's m moves; off while scores are bounded
  float tracked_square = 0;   // largest squared key norm for which track_maxima() was called
  QueryRows queries = {};     // the tiles' left operand
  float largest_query_square = 0;
  std::int64_t left_out = 0;             // number of rows left out
  bool splits_weights = false;           // weights become operands of matrix tiles at once
  bool stores_weights = true;            // weights are stored in f32, as far as they are read
  bool sums_rounded = false;             // the rows' sums are of rounded weights
  float* weights = w.weights;            // [kQueryBlock][kKvBlock], for the current KV block
  float* weight_parts = w.weight_parts;  // the operand of the current group
  cpu::KeptTask* kept = nullptr;         // keeps this task's weights, and still those of the previous task
  KeyRange columns = {0, 0};             // map columns of the span's keys so far

  static void* operator new(std::size_t /*size*/, void* room) { return room; }
};

/// Tasks that go over the same keys together.
struct TasksTogether {
  TaskState* of[cpu::kTasksTogether];
  std::int64_t count;
};

/// Whether entropy, maxima or lists are kept.
HEED_INLINE bool keeps_statistics(const Arguments& call) {
  return call.entropy.data || call.max_score.data || call.top_k > 0;
}

/// Whether a unit of dot products takes a call, which must ask for nothing that bf16 would round. Dropout
/// scales weights in f32, and few rows are as fast in f32.
inline bool multiplies_pairs(const Arguments& call, const Tiling& tiling) {
  return kHasBf16Dot && call.query.dtype == DType::bf16 && call.output.data &&
         call.output.dtype == DType::bf16 && tiling.step == kKvBlock && call.dropout.threshold == 0;
}

/// Whether a call's weights are rounded to bf16, and the sum of the rounded weights is kept.
inline bool rounds_weights(const Arguments& call, const Tiling& tiling) {
  if (tiling.path == Path::decode_tiles) return false;
  if (kHasMatrixTiles) return UnitFormat::kRoundsWeights && call.output.data && call.dropout.threshold == 0;
  return multiplies_pairs(call, tiling);
}

/// Whether a result needs the sum of a row's weights before they are rounded. The output does not.
inline bool needs_exact_sum(const Arguments& call) {
  return call.lse.data || keeps_statistics(call) || call.distance.data || call.map_size.columns > 0 ||
         call.keeps_row_sums;
}

inline StateParts parts_of(const Arguments& call, const Tiling& tiling) {
  return {tiling.rows,
          call.output.data ? round_up(call.value_dim, kLanes) : 0,
          call.top_k,
          keeps_statistics(call),
          call.max_score.data != nullptr,
          rounds_weights(call, tiling) && (!kHasMatrixTiles || needs_exact_sum(call)),
          call.distance.data != nullptr};
}

/// Whether score tiles by lanes add a call's decay, which is then its only modifier.
inline bool tiles_add_decay(const Arguments& call) {
  return !kHasMatrixTiles && call.decay.data && !has_modifiers_beside_decay(call) && call.top_k == 0;
}

/// Floats of the products of kTileDecodeRows rows with a phase's values. The last store may be of more tiles.
inline std::int64_t tile_products_of(std::int64_t columns) {
  return (kTileDecodeRows / kTileRows * columns / (2 * kLanes) + kTilesAtOnce - 1) * kTileFloats;
}

/// Lays out the memory at `base`; with base == nullptr, only counts bytes.
inline Workspace lay_out(const Arguments& call, const Tiling& tiling, void* base) {
  Workspace w;
  Memory memory(base);
  const std::int64_t rows = tiling.rows;
  const StateParts parts = parts_of(call, tiling);
  w.depth = call.head_dim;
  w.padded_depth = round_up(call.head_dim, kLanes);
  w.value_columns = round_up(call.value_dim, kLanes);
  w.key_lanes = UnitFormat::kParts * lanes_of<UnitFormat>(call.head_dim);
  w.query_lanes = UnitFormat::kMatrixTiles ? w.key_lanes : w.padded_depth;
  w.value_lanes = UnitFormat::kParts * w.value_columns / UnitFormat::kElements;
  w.step = tiling.step;
  w.packed_blocks = tiling.cached_keys / w.step;
  w.packed_block = memory.take<PackedKvBlock>(w.packed_blocks);
  w.packed = memory.floats(tiling.cached_keys * (w.key_lanes + w.value_lanes));
  w.scratch = memory.floats(kLanes * w.query_lanes);
  w.cached = memory.floats(call.cache != nullptr ? kKvBlock * larger(w.padded_depth, w.value_columns) : 0);
  w.weight_parts =
      memory.floats(UnitFormat::kElements == 2 ? UnitFormat::kWeightParts * kGroupRows * kKvBlock : 0);
  w.product = memory.floats(tiling.path == Path::decode_tiles ? tile_products_of(parts.value_columns)
                            : UnitFormat::kParts > 1          ? kGroupRows * parts.value_columns
                                                              : 0);
  const bool in_place = tiling.path == Path::matrix_keys || tiling.path == Path::decode_tiles;
  w.query_columns = in_place ? memory.floats(rows * w.key_lanes) : nullptr;
  w.key_scores = in_place ? memory.floats(kKvBlock * kGroupRows) : nullptr;
  w.weights = memory.floats(kQueryBlock * kKvBlock);
  w.query_row = memory.take<QueryRow>(rows);
  w.group = memory.take<RowGroup>((rows + kGroupRows - 1) / kGroupRows);
  w.visible_ld =
      has_masks(call) ? visible_bytes(w.step < kKvBlock ? kDecodeKvBlocks * kKvBlock : kKvBlock) : 0;
  w.visible = memory.take<std::uint8_t>(rows * w.visible_ld);
  w.query = memory.floats(rows * w.query_lanes);
  w.query_square = memory.floats(rows);
  w.row_decay = {memory.take<double>(tiles_add_decay(call) ? rows : 0),
                 memory.floats(tiles_add_decay(call) ? rows : 0)};
  w.softmax = lay_out_state(parts, memory);
  w.merged = call.key_length > cpu::kSpan ? lay_out_state(parts, memory) : SoftmaxState{};
  w.partial = memory.floats(w.step < kKvBlock ? rows * parts.value_columns : 0);
  w.list_rows = call.top_k > 0 ? round_up(rows, kLanes) : 0;
  w.candidates = take_columns(memory, call.top_k > 0 ? kKvBlock * kLanes : 0);
  const bool waits = call.top_k > 0 && kHasMatrixTiles;
  w.waiting = take_waiting(memory, waits);
  w.marks = memory.take<CandidateBits>(waits ? 2 * kPanelVectors * kGroupRows : 0);
  w.moved = memory.floats(call.top_k > 0 ? kKvBlock * kLanes : 0);
  w.list = take_columns(memory, round_up(call.top_k, kLevelsAtOnce));
  w.candidate_bits = memory.take<CandidateBits>(w.list_rows * kKvBlock / kLanes + 8);
  w.inverse = memory.floats(round_up(rows, kLanes));
  w.bin_rows = call.map_size.columns > 0 ? round_up(rows, kLanes) : 0;
  w.bins = memory.floats(w.bin_rows * call.map_size.columns);
  w.carried_bins = memory.floats(w.bin_rows);
  w.bytes = memory.bytes();
  return w;
}

/// The task's rows, for masks to narrow.
inline MaskedRows masked_rows(const TaskContext& task) {
  const Workspace& w = task.w;
  return {task.call,        task.task,          w.query_row, w.group,     task.rows,
          task.padded_rows, w.softmax.left_out, w.visible,   w.visible_ld};
}

/// The context of a task whose working memory is laid out.
inline TaskContext context_of(const Arguments& call, const Task& task, const Workspace& w) {
  const std::int64_t rows = task.head_count * (task.row_end - task.row_begin);
  return {call,
          task,
          w,
          kv_source_of(call, task),
          rows,
          round_up(rows, kRowUnit),
          has_score_modifiers(call),
          tiles_add_decay(call) && task.key_begin < task.key_end &&
              (task.head_count == 1 || call.decay.stride[1] == 0),
          keeps_statistics(call),
          w.key_scores != nullptr};
}

/// Returns rows [first, first + count) of a task's keys or values as evenly spaced rows of numbers. They stay
/// in place or are copied to w.cached. Row indices stay the same.
inline RowBlock even_rows(const TaskContext& context, bool are_keys, std::int64_t first, std::int64_t count) {
  const Arguments& call = context.call;
  const KvSource& kv = context.kv;
  const HeadRows& rows = are_keys ? kv.keys : kv.values;
  const std::int64_t width = are_keys ? call.head_dim : call.value_dim;
  if (call.cache == nullptr) return {rows, first, count, width};
  float* memory = context.w.cached;
  const std::int64_t stride = round_up(width, kLanes);
  DType copied = DType::f32;
  if (kv.codes != nullptr) {
    const CodedRows coded = {*kv.codes, kv.codes->sequences[context.task.sequence], rows,
                             context.task.head_begin / call.group,
                             are_keys || kv.codes->codes.values_in_keys};
    for (std::int64_t k = 0; k < count; ++k) read_coded_row(coded, first + k, width, memory + k * stride);
  } else if (rows.tensor.dtype != call.query.dtype) {  // floats of another width than the queries
    for (std::int64_t k = 0; k < count; ++k)
      read_row(rows.tensor, rows.at(first + k), 1, width, memory + k * stride);
  } else if (rows.is_even(first, count)) {
    return {head_rows(rows.tensor, rows.at(first) - first * rows.row_stride()), first, count, width};
  } else {
    copied = rows.tensor.dtype;
    char* to = reinterpret_cast<char*>(memory);
    for (std::int64_t k = 0; k < count; ++k)
      __builtin_memcpy(to + rows.bytes_of(k * stride), rows.address(first + k),
                       static_cast<std::size_t>(rows.bytes_of(width)));
  }
  return {head_rows({memory, copied, {0, 0, stride, 1}}, -first * stride), first, count, width};
}

/// The states as tiles see them, for a panel that begins at key `done` of its KV block.
HEED_INLINE TileRows tile_rows(const TaskContext& task, std::int64_t done) {
  const SoftmaxState& s = task.w.softmax;
  return {s.shift,
          s.threshold,
          s.sum,
          s.moment,
          s.max,
          s.entry_threshold,
          task.call.top_k > 0 ? task.w.candidate_bits + done / kLanes : nullptr,
          kKvBlock / kLanes};
}

/// Forgets all packed KV blocks, because the memory may hold another call's blocks.
inline void reset(const Arguments& call, const Tiling& tiling, void* workspace) {
  const Workspace w = lay_out(call, tiling, workspace);
  for (std::int64_t s = 0; s < w.packed_blocks; ++s) w.packed_block[s].key = -1;
}

struct KvBlock {
  const float* keys;          // panels
  const float* values;        // column panels, or the rows in the caller's memory
  std::int64_t value_stride;  // 0: packed; else the distance in floats between two keys' values
  std::int64_t count;         // number of keys
  PackedKvBlock measured;
  BlockPrefetch next_keys;    // shared among the task's rows, times the panels of a KV block
  BlockPrefetch next_values;  // the same, times the panels of values

  /// The values of the panel from column `column` on; stride() is their stride.
  const float* panel(std::int64_t column) const {
    return value_stride == 0 ? values + column * count : values + column;
  }
  std::int64_t stride(std::int64_t vectors) const {
    return value_stride == 0 ? vectors * kLanes : value_stride;
  }
};

/// Divides `bytes` into equal shares of limited size, so few rows do not prefetch all of it.
inline std::int64_t share_of(std::int64_t bytes, std::int64_t rows) {
  constexpr std::int64_t kUnit = 16;
  constexpr std::int64_t kMax = 128;
  return smaller(kMax, round_up(bytes / rows, kUnit));
}

/// Sets up the prefetch of the next KV block, if it is packed already or read in place.
inline void find_prefetch(KvBlock& kv_block, const Task& task, const Workspace& w) {
  const std::int64_t rows = round_up(task.head_count * (task.row_end - task.row_begin), kRowUnit);
  const std::int64_t panels = (w.value_columns / kLanes + kValueVectors - 1) / kValueVectors;
  const PackedKvBlock& packed_block = kv_block.measured;
  const std::int64_t index = ((packed_block.key - task.key_begin) / w.step + 1) % w.packed_blocks;
  const PackedKvBlock& next = w.packed_block[index];
  const bool packed = next.key == packed_block.key + w.step && next.batch == packed_block.batch &&
                      next.kv_head == packed_block.kv_head;
  const float* keys = w.packed + index * w.step * (w.key_lanes + w.value_lanes);
  if (packed)
    kv_block.next_keys = {reinterpret_cast<const char*>(keys),
                          share_of(4 * w.step * w.key_lanes, rows * (kKvBlock / kPanel))};
  const std::int64_t value_share = share_of(4 * w.step * w.value_columns, rows * panels);
  if (kv_block.value_stride > 0)
    kv_block.next_values = {reinterpret_cast<const char*>(kv_block.values + w.step * kv_block.value_stride),
                            value_share};
  else if (packed)
    kv_block.next_values = {reinterpret_cast<const char*>(keys + w.step * w.key_lanes), value_share};
}

/// Packs keys [key, key + step) of a task's key head, unless they are packed already; `key` counts within the
/// segment. Dense f32 values stay in place.
template <class Format>
KvBlock packed_kv_block(const TaskContext& context, std::int64_t key) {
  const Arguments& call = context.call;
  const Task& task = context.task;
  const Workspace& w = context.w;
  const KvSource& kv = context.kv;
  const std::int64_t absolute_key = task.key_begin + key;
  const std::int64_t kv_head = task.head_begin / call.group;
  const std::int64_t index = w.packed_blocks == 1 ? 0 : key / w.step % w.packed_blocks;
  const std::int64_t count = smaller(w.step, task.key_end - absolute_key);
  float* keys = w.packed + index * w.step * (w.key_lanes + w.value_lanes);
  float* values = keys + w.step * w.key_lanes;
  PackedKvBlock& packed_block = w.packed_block[index];
  const bool whole = w.step == kKvBlock;
  const bool in_place = Format::kElements == 1 && whole && !kv.codes && kv.values.is_dense(call.value_dim);
  if (packed_block.key != absolute_key || packed_block.batch != task.batch ||
      packed_block.kv_head != kv_head) {
    packed_block.batch = task.batch;
    packed_block.kv_head = kv_head;
    packed_block.key = absolute_key;
    if (w.packed_blocks == 1 && whole && call.key_length > kKvBlock) count_path(call.paths, Path::repacked);
    // In narrow steps, values are prefetched while keys are packed, and then the next keys.
    const bool with_values = call.output.data != nullptr;
    packed_block.keys = {0, true};
    const bool prefetches = !whole && call.cache == nullptr;
    if (!context.keys_in_place)
      packed_block.keys = Format::pack_keys(
          even_rows(context, true, key, count), call.log2_scale, keys, w.scratch, w.query_lanes,
          RowPrefetch{kv.values, key, prefetches && with_values ? call.value_dim : 0});
    packed_block.value_factor = 1;
    if (with_values && !in_place)
      packed_block.value_factor =
          Format::pack_values(even_rows(context, false, key, count), values,
                              RowPrefetch{kv.keys, key + w.step, prefetches ? w.depth : 0});
  }
  KvBlock kv_block = {keys, values, 0, count, packed_block, {}, {}};
  if (in_place) {
    kv_block.values = kv.values.floats(key);
    kv_block.value_stride = kv.values.row_stride();
  }
  if (Format::kElements == 1 && whole && absolute_key + w.step < task.key_end)
    find_prefetch(kv_block, task, w);
  return kv_block;
}

}  // namespace heed::detail::HEED_ISA
