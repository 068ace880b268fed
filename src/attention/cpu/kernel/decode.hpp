// Few query rows, as in decoding: every key is read once for a handful of products, so the speed is that of
// memory. Keys and values are read in place and never packed: some KV blocks and then their values,
// for memory is faster the longer it is read in order.
#pragma once

#include "attention/cpu/kernel/epilogue.hpp"
#include "attention/cpu/kernel/softmax.hpp"
#include "attention/cpu/kernel/value_block.hpp"

namespace heed::detail::HEED_ISA {

/// Rows that can be read as whole vectors.
HEED_INLINE bool is_whole_vectors(const Input& tensor, std::int64_t width) {
  return tensor.stride[3] == 1 && width % kLanes == 0;
}

/// One vector of elements as floats, or of pairs of bf16 as they lie.
template <Type kType, bool kBf16Dot = false>
HEED_INLINE Vf load_as(const void* data, std::int64_t at) {
  if constexpr (kBf16Dot)
    return load(reinterpret_cast<const float*>(static_cast<const std::uint16_t*>(data) + at));
  else if constexpr (kType == Type::f32)
    return load(static_cast<const float*>(data) + at);
  else if constexpr (kType == Type::bf16)
    return load_bf16(static_cast<const std::uint16_t*>(data) + at);
  else
    return load_f16(static_cast<const std::uint16_t*>(data) + at);
}

/// Rows that will be read next, in the order of reading: `count` rows of this tensor, then those of the
/// other. Each row that is read asks for the one `ahead` rows further on, so that memory is never idle.
struct StreamPrefetch {
  const char* row;             // the tensor's first row of the block
  std::int64_t bytes, stride;  // of a row
  std::int64_t count;
  std::int64_t ahead;
  const char* next;  // the other tensor's next row
  std::int64_t next_bytes, next_stride;

  HEED_INLINE void fetch(std::int64_t k) const {
    const std::int64_t at = k + ahead;
    const char* from = at < count ? row + at * stride : next + (at - count) * next_stride;
    const std::int64_t size = at < count ? bytes : next_bytes;
    for (std::int64_t byte = 0; byte < size; byte += 64) __builtin_prefetch(from + byte, 0, 3);
  }
};

inline std::int64_t rows_ahead(Type type, std::int64_t bytes) {
  const std::int64_t distance = type == Type::f32 ? kAheadBytes : kAheadBytes16;
  return larger(1, smaller(kPanel, distance / bytes));
}

inline StreamPrefetch stream_prefetch(const Input& tensor, std::int64_t at, std::int64_t width,
                                      std::int64_t count, const Input& other, std::int64_t other_at,
                                      std::int64_t other_width) {
  const std::int64_t size = tensor.type == Type::f32 ? 4 : 2;
  return {static_cast<const char*>(tensor.data) + at * size,
          width * size,
          tensor.stride[2] * size,
          count,
          rows_ahead(tensor.type, width * size),
          static_cast<const char*>(other.data) + other_at * size,
          other_width * size,
          other.stride[2] * size};
}

/// scores [kTileRows][kPanel] = `scale` times queries [kTileRows][ldq] x keys [count], read in place; beyond
/// `count` they are 0. kLanes / kTileRows keys are done at a time: one accumulator for each query and key,
/// whose lanes a transposition brings together. With kBf16Dot, queries are pairs of bf16 as the keys are.
/// False where a score is not finite, as it is where a sum on its way was not, or beyond what weights are
/// taken of.
template <Type kType, bool kBf16Dot>
bool decode_scores(const Input& key, std::int64_t at, std::int64_t count, std::int64_t depth, float scale,
                   const float* query, std::int64_t ldq, float (&scores)[kTileRows][kPanel],
                   const StreamPrefetch& stream, std::int64_t done) {
  constexpr int kKeys = kLanes / kTileRows;
  constexpr auto kAll = static_cast<std::uint32_t>((std::uint64_t{1} << kLanes) - 1);
  std::uint32_t in_range = kAll;
  for (std::int64_t k = 0; k < count; k += kKeys) {
    Vf acc[kLanes];
    std::int64_t from[kKeys];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) acc[i] = zero();
#pragma GCC unroll 4
    for (int i = 0; i < kKeys; ++i) {
      from[i] = at + smaller(k + i, count - 1) * key.stride[2];
      stream.fetch(done + k + i);
    }
    for (std::int64_t d = 0; d < depth; d += kBf16Dot ? 2 * kLanes : kLanes) {
      Vf q[kTileRows];
#pragma GCC unroll 4
      for (int r = 0; r < kTileRows; ++r) q[r] = load(query + r * ldq + (kBf16Dot ? d / 2 : d));
#pragma GCC unroll 4
      for (int i = 0; i < kKeys; ++i) {
        const Vf x = load_as<kType, kBf16Dot>(key.data, from[i] + d);
#pragma GCC unroll 4
        for (int r = 0; r < kTileRows; ++r)
          acc[r * kKeys + i] = multiply_add<kBf16Dot>(x, q[r], acc[r * kKeys + i]);
      }
    }
    const Vf score = mul(sum_each(acc), splat(scale));
    in_range &= bits_of(greater_equal(splat(kLargestScore), absolute(score)));
    alignas(64) float lane[kLanes];
    store(lane, score);
    for (int r = 0; r < kTileRows; ++r)
      for (std::int64_t i = 0; i < kKeys && k + i < kPanel; ++i) scores[r][k + i] = lane[r * kKeys + i];
  }
  for (int r = 0; r < kTileRows; ++r)
    for (std::int64_t k = count; k < kPanel; ++k) scores[r][k] = 0;
  return in_range == kAll;
}

/// output [kDecodeRows][ldo] goes on with weights [kDecodeRows][ldw] x values [count], kVectors vectors wide,
/// read in place.
template <Type kType, int kVectors>
void decode_values(const Input& value, std::int64_t at, std::int64_t count, const float* weights,
                   std::int64_t ldw, float* output, std::int64_t ldo, const StreamPrefetch* stream,
                   std::int64_t done) {
  Vf acc[kDecodeRows][static_cast<std::size_t>(kVectors)];
#pragma GCC unroll 2
  for (int r = 0; r < kDecodeRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) acc[r][v] = load(output + r * ldo + v * kLanes);
  for (std::int64_t k = 0; k < count; ++k) {
    const Vf first = splat(weights[k]);
    const Vf second = splat(weights[ldw + k]);
    if (stream) stream->fetch(done + k);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const Vf x = load_as<kType>(value.data, at + k * value.stride[2] + v * kLanes);
      acc[0][v] = mul_add(first, x, acc[0][v]);
      acc[1][v] = mul_add(second, x, acc[1][v]);
    }
  }
#pragma GCC unroll 2
  for (int r = 0; r < kDecodeRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) store(output + r * ldo + v * kLanes, acc[r][v]);
}

template <Type kType>
auto decode_values_of(std::int64_t vectors) {
  return vectors >= kDecodeVectors ? decode_values<kType, kDecodeVectors>
         : vectors >= 4            ? decode_values<kType, 4>
         : vectors >= 2            ? decode_values<kType, 2>
                                   : decode_values<kType, 1>;
}

/// KV blocks whose keys are read before their values: where they lie, as far as some row may see them.
struct DecodeBlock {
  std::int64_t key;    // the first, within the segment
  std::int64_t count;  // keys
  std::int64_t key_at, value_at;
  StreamPrefetch keys, values;
};

inline DecodeBlock decode_block(const TaskState& state, std::int64_t key) {
  const Arguments& call = state.call;
  const Task& task = state.task;
  const std::int64_t count = smaller(kDecodeKvBlocks * kKvBlock, state.w.group[0].end - key);
  const std::int64_t kv_head = task.head_begin / call.group;
  const std::int64_t key_at = offset_of(call.key.stride, task.batch, kv_head, task.key_begin + key);
  const std::int64_t value_at = offset_of(call.value.stride, task.batch, kv_head, task.key_begin + key);
  return {key,
          count,
          key_at,
          value_at,
          stream_prefetch(call.key, key_at, state.w.depth, count, call.value, value_at, call.value_dim),
          stream_prefetch(call.value, value_at, call.value_dim, count, call.key,
                          key_at + count * call.key.stride[2], state.w.depth)};
}

/// The panels of a KV block of a block: its keys [begin, end), counted from the block's first.
inline KeyRange decode_kv_block(const TaskState& state, const DecodeBlock& block, std::int64_t kv_block) {
  const std::int64_t low = larger(0, state.w.group[0].begin - block.key) / kPanel * kPanel;
  return {larger(low, kv_block * kKvBlock), smaller(block.count, (kv_block + 1) * kKvBlock)};
}

/// The weights of all rows for a panel of `count` keys that begins at key `at` of the block.
template <Type kType, bool kBf16Dot>
void decode_panel_weights(TaskState& state, const DecodeBlock& block, std::int64_t at, std::int64_t count) {
  const Workspace& w = state.w;
  const std::int64_t done = at % kKvBlock;
  for (std::int64_t row = 0; row < state.padded_rows; row += kTileRows) {
    alignas(64) float scores[kTileRows][kPanel];
    const float* query = state.queries.data + row * state.queries.stride;
    const bool in_range = decode_scores<kType, kBf16Dot>(
        state.call.key, block.key_at + at * state.call.key.stride[2], count, w.depth, state.call.scale, query,
        state.queries.stride, scores, block.keys, at);
    softmax_scores(state, row, block.key + at, scores, w.weights + row * kKvBlock + done, done, !in_range);
  }
  add_panel_statistics(state, 0, state.padded_rows, block.key + at, done, count);
}

/// The weights of such a panel times its values.
template <Type kType>
void add_decode_values(const TaskState& state, const DecodeBlock& block, std::int64_t at,
                       std::int64_t count) {
  const Workspace& w = state.w;
  const Input& value = state.call.value;
  const std::int64_t vectors = w.value_columns / kLanes;
  for (std::int64_t row = 0; row < state.rows; row += kDecodeRows)
    for (std::int64_t v = 0; v < vectors;) {
      const std::int64_t left = vectors - v;
      const std::int64_t here = left >= kDecodeVectors ? kDecodeVectors : left >= 4 ? 4 : left >= 2 ? 2 : 1;
      decode_values_of<kType>(here)(value, block.value_at + at * value.stride[2] + v * kLanes, count,
                                    w.weights + row * kKvBlock + at % kKvBlock, kKvBlock,
                                    w.partial + row * w.value_columns + v * kLanes, w.value_columns,
                                    row + v == 0 ? &block.values : nullptr, at);
      v += here;
    }
}

/// Turns bf16 queries, which were packed as floats, back to pairs where products of pairs can read the keys.
template <bool kBf16Dot>
bool pack_decode_queries([[maybe_unused]] const TaskState& state) {
  if constexpr (kBf16Dot) {
    const Workspace& w = state.w;
    if (state.call.query.type != Type::bf16 || state.call.key.type != Type::bf16 ||
        w.depth % (2 * kLanes) != 0)
      return false;
    for (std::int64_t r = 0; r < state.padded_rows; ++r) {
      float* row = w.query + r * w.padded_depth;
      for (std::int64_t d = 0; d < w.depth; d += 2 * kLanes)
        store_bf16(reinterpret_cast<std::uint16_t*>(row) + d, load(row + d), load(row + d + kLanes));
    }
    return true;
  }
  return false;
}

/// Brings the weights of a KV block to the shifts of now; `shifts` [rows]: those that they were taken with.
inline void follow_shifts(const TaskState& state, const KeyRange& kv_block, const float* shifts) {
  for (std::int64_t r = 0; r < state.rows; ++r) {
    const float step = shifts[r] - state.w.rows.shift[r];
    if (step == 0) continue;
    scale_row(state.w.weights + r * kKvBlock + kv_block.begin % kKvBlock, kv_block.end - kv_block.begin,
              power_of(step));
  }
}

/// A block of keys from `key` on, for all rows of the task, of which there are at most kGroupRows: first the
/// weights of its KV blocks, one below the other in state.w.weights, and then their values.
template <Type kType, bool kBf16Dot = false>
void attend_decode(TaskState& state, std::int64_t key) {
  const DecodeBlock block = decode_block(state, key);
  const std::int64_t kv_blocks = (block.count + kKvBlock - 1) / kKvBlock;
  float shifts[kDecodeKvBlocks][kGroupRows];
  float* const weights = state.w.weights;
  for (std::int64_t c = 0; c < kv_blocks; ++c) {
    state.w.weights = weights + c * kGroupRows * kKvBlock;
    const KeyRange kv_block = decode_kv_block(state, block, c);
    for (std::int64_t at = kv_block.begin; at < kv_block.end; at += kPanel)
      decode_panel_weights<kType, kBf16Dot>(state, block, at, smaller(kPanel, kv_block.end - at));
    insert_candidates(state, 0, state.padded_rows, key + c * kKvBlock);
    for (std::int64_t r = 0; r < state.rows; ++r) shifts[c][r] = state.w.rows.shift[r];
  }
  for (std::int64_t c = 0; state.call.output.data && c < kv_blocks; ++c) {
    state.w.weights = weights + c * kGroupRows * kKvBlock;
    const KeyRange kv_block = decode_kv_block(state, block, c);
    follow_shifts(state, kv_block, shifts[c]);
    for (std::int64_t at = kv_block.begin; at < kv_block.end; at += kPanel)
      add_decode_values<kType>(state, block, at, smaller(kPanel, kv_block.end - at));
    add_partial(state);
  }
  state.w.weights = weights;
}

}  // namespace heed::detail::HEED_ISA
