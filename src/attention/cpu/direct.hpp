// Few query rows, as in decoding: every key is read once for a handful of products, so the speed is that of
// memory. Keys and values are read in place and never packed: some chunks of keys and then their values, for
// memory is faster the longer it is read in order.
#pragma once

#include "attention/cpu/finish.hpp"
#include "attention/cpu/score.hpp"
#include "attention/cpu/value_block.hpp"

namespace heed::detail::HEED_ISA {

/// Rows that can be read as whole vectors.
HEED_INLINE bool is_direct(const Input& tensor, std::int64_t width) {
  return tensor.stride[3] == 1 && width % kLanes == 0;
}

/// One vector of elements as floats, or of pairs of bf16 as they lie.
template <Type kType, bool kPairs = false>
HEED_INLINE Vf load_as(const void* data, std::int64_t at) {
  if constexpr (kPairs)
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
struct Stream {
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

inline Stream stream_of(const Input& tensor, std::int64_t at, std::int64_t width, std::int64_t count,
                        const Input& other, std::int64_t other_at, std::int64_t other_width) {
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
/// whose lanes a transposition brings together. With kPairs, queries are pairs of bf16 as the keys are. False
/// where a score is not finite, as it is where a sum on its way was not, or beyond what weights are taken of.
template <Type kType, bool kPairs>
bool direct_scores(const Input& key, std::int64_t at, std::int64_t count, std::int64_t depth, float scale,
                   const float* query, std::int64_t ldq, float (&scores)[kTileRows][kPanel],
                   const Stream& stream, std::int64_t done) {
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
    for (std::int64_t d = 0; d < depth; d += kPairs ? 2 * kLanes : kLanes) {
      Vf q[kTileRows];
#pragma GCC unroll 4
      for (int r = 0; r < kTileRows; ++r) q[r] = load(query + r * ldq + (kPairs ? d / 2 : d));
#pragma GCC unroll 4
      for (int i = 0; i < kKeys; ++i) {
        const Vf x = load_as<kType, kPairs>(key.data, from[i] + d);
#pragma GCC unroll 4
        for (int r = 0; r < kTileRows; ++r)
          acc[r * kKeys + i] = multiply_add<kPairs>(x, q[r], acc[r * kKeys + i]);
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

/// output [kDirectRows][ldo] goes on with weights [kDirectRows][ldw] x values [count], kVectors vectors wide,
/// read in place.
template <Type kType, int kVectors>
void direct_values(const Input& value, std::int64_t at, std::int64_t count, const float* weights,
                   std::int64_t ldw, float* output, std::int64_t ldo, const Stream* stream,
                   std::int64_t done) {
  Vf acc[kDirectRows][static_cast<std::size_t>(kVectors)];
#pragma GCC unroll 2
  for (int r = 0; r < kDirectRows; ++r)
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
  for (int r = 0; r < kDirectRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) store(output + r * ldo + v * kLanes, acc[r][v]);
}

template <Type kType>
auto direct_values_of(std::int64_t vectors) {
  return vectors >= kDirectVectors ? direct_values<kType, kDirectVectors>
         : vectors >= 4            ? direct_values<kType, 4>
         : vectors >= 2            ? direct_values<kType, 2>
                                   : direct_values<kType, 1>;
}

/// Chunks whose keys are read before their values: where they lie, as far as some row may see them.
struct DirectBlock {
  std::int64_t key;    // the first, within the segment
  std::int64_t count;  // keys
  std::int64_t key_at, value_at;
  Stream keys, values;
};

inline DirectBlock direct_block(const Run& run, std::int64_t key) {
  const Call& call = run.call;
  const Task& task = run.task;
  const std::int64_t count = smaller(kDirectChunks * kChunk, run.w.group[0].high - key);
  const std::int64_t kv_head = task.head_begin / call.group;
  const std::int64_t key_at = offset_of(call.key.stride, task.batch, kv_head, task.key_begin + key);
  const std::int64_t value_at = offset_of(call.value.stride, task.batch, kv_head, task.key_begin + key);
  return {key,
          count,
          key_at,
          value_at,
          stream_of(call.key, key_at, run.w.depth, count, call.value, value_at, call.value_dim),
          stream_of(call.value, value_at, call.value_dim, count, call.key,
                    key_at + count * call.key.stride[2], run.w.depth)};
}

/// The panels of a chunk of a block: its keys [begin, end), counted from the block's first.
inline KeyRange direct_chunk(const Run& run, const DirectBlock& block, std::int64_t chunk) {
  const std::int64_t low = larger(0, run.w.group[0].low - block.key) / kPanel * kPanel;
  return {larger(low, chunk * kChunk), smaller(block.count, (chunk + 1) * kChunk)};
}

/// The weights of all rows for a panel of `count` keys that begins at key `at` of the block.
template <Type kType, bool kPairs>
void score_direct(Run& run, const DirectBlock& block, std::int64_t at, std::int64_t count) {
  const Work& w = run.w;
  const std::int64_t done = at % kChunk;
  for (std::int64_t row = 0; row < run.padded_rows; row += kTileRows) {
    alignas(64) float scores[kTileRows][kPanel];
    const float* query = run.queries.data + row * run.queries.stride;
    const bool in_range =
        direct_scores<kType, kPairs>(run.call.key, block.key_at + at * run.call.key.stride[2], count, w.depth,
                                     run.call.scale, query, run.queries.stride, scores, block.keys, at);
    weigh_scores(run, row, block.key + at, scores, w.weights + row * kChunk + done, done, !in_range);
  }
  observe_panel(run, 0, run.padded_rows, block.key + at, done, count);
}

/// The weights of such a panel times its values.
template <Type kType>
void add_direct_values(const Run& run, const DirectBlock& block, std::int64_t at, std::int64_t count) {
  const Work& w = run.w;
  const Input& value = run.call.value;
  const std::int64_t vectors = w.value_columns / kLanes;
  for (std::int64_t row = 0; row < run.rows; row += kDirectRows)
    for (std::int64_t v = 0; v < vectors;) {
      const std::int64_t left = vectors - v;
      const std::int64_t here = left >= kDirectVectors ? kDirectVectors : left >= 4 ? 4 : left >= 2 ? 2 : 1;
      direct_values_of<kType>(here)(value, block.value_at + at * value.stride[2] + v * kLanes, count,
                                    w.weights + row * kChunk + at % kChunk, kChunk,
                                    w.partial + row * w.value_columns + v * kLanes, w.value_columns,
                                    row + v == 0 ? &block.values : nullptr, at);
      v += here;
    }
}

/// Turns bf16 queries, which were packed as floats, back to pairs where products of pairs can read the keys.
template <bool kPairs>
bool pair_direct_queries([[maybe_unused]] const Run& run) {
  if constexpr (kPairs) {
    const Work& w = run.w;
    if (run.call.query.type != Type::bf16 || run.call.key.type != Type::bf16 || w.depth % (2 * kLanes) != 0)
      return false;
    for (std::int64_t r = 0; r < run.padded_rows; ++r) {
      float* row = w.query + r * w.padded_depth;
      for (std::int64_t d = 0; d < w.depth; d += 2 * kLanes)
        store_bf16(reinterpret_cast<std::uint16_t*>(row) + d, load(row + d), load(row + d + kLanes));
    }
    return true;
  }
  return false;
}

/// Brings the weights of a chunk to the shifts of now; `shifts` [rows]: those that they were taken with.
inline void follow_shifts(const Run& run, const KeyRange& chunk, const float* shifts) {
  for (std::int64_t r = 0; r < run.rows; ++r) {
    const float step = shifts[r] - run.w.rows.shift[r];
    if (step == 0) continue;
    scale_row(run.w.weights + r * kChunk + chunk.begin % kChunk, chunk.end - chunk.begin, power_of(step));
  }
}

/// A block of keys from `key` on, for all rows of the task, of which there are at most kGroupRows: first the
/// weights of its chunks, one below the other in run.w.weights, and then their values.
template <Type kType, bool kPairs = false>
void attend_direct(Run& run, std::int64_t key) {
  const DirectBlock block = direct_block(run, key);
  const std::int64_t chunks = (block.count + kChunk - 1) / kChunk;
  float shifts[kDirectChunks][kGroupRows];
  float* const weights = run.w.weights;
  for (std::int64_t c = 0; c < chunks; ++c) {
    run.w.weights = weights + c * kGroupRows * kChunk;
    const KeyRange chunk = direct_chunk(run, block, c);
    for (std::int64_t at = chunk.begin; at < chunk.end; at += kPanel)
      score_direct<kType, kPairs>(run, block, at, smaller(kPanel, chunk.end - at));
    offer_block(run, 0, run.padded_rows, key + c * kChunk);
    for (std::int64_t r = 0; r < run.rows; ++r) shifts[c][r] = run.w.rows.shift[r];
  }
  for (std::int64_t c = 0; run.call.output.data && c < chunks; ++c) {
    run.w.weights = weights + c * kGroupRows * kChunk;
    const KeyRange chunk = direct_chunk(run, block, c);
    follow_shifts(run, chunk, shifts[c]);
    for (std::int64_t at = chunk.begin; at < chunk.end; at += kPanel)
      add_direct_values<kType>(run, block, at, smaller(kPanel, chunk.end - at));
    add_partial(run);
  }
  run.w.weights = weights;
}

}  // namespace heed::detail::HEED_ISA
