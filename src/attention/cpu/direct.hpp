// Few query rows, as in decoding: every key is read once for a handful of products, so the speed is that of
// memory. Keys and values are read in place and in order, as the processor's prefetcher expects it, and never
// packed.
#pragma once

#include "attention/cpu/finish.hpp"
#include "attention/cpu/score.hpp"

namespace heed::detail::HEED_ISA {

// A row of a value tile here is as wide as registers allow, so that a row of values is read once from end to
// end.
inline constexpr int kDirectRows = 2;
inline constexpr int kDirectVectors = kRegisters >= 32 ? 8 : 4;

/// Rows that can be read as whole vectors.
HEED_INLINE bool is_direct(const Input& tensor, std::int64_t width) {
  return tensor.stride[3] == 1 && width % kLanes == 0;
}

template <Type kType>
HEED_INLINE Vf load_as(const void* data, std::int64_t at) {
  if constexpr (kType == Type::f32) return load(static_cast<const float*>(data) + at);
  if constexpr (kType == Type::bf16) return load_bf16(static_cast<const std::uint16_t*>(data) + at);
  if constexpr (kType == Type::f16) return load_f16(static_cast<const std::uint16_t*>(data) + at);
}

/// Rows that will be read next, in the order of reading: `count` rows of this tensor, then those of the
/// other. Each row that is read asks for the one `ahead` rows further on, so that memory is never idle: as
/// far ahead as a sweep on Zen 5 found best, which is twice as far where each byte takes twice the
/// arithmetic.
struct Stream {
  const char* row;             // the tensor's first row of the panel
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
  const std::int64_t distance = type == Type::f32 ? 6 << 10 : 12 << 10;
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

/// scores [kTileRows][kPanel] = queries [kTileRows][ldq] x keys [count] times `scale`, as packing rounds
/// them, read in place. kLanes / kTileRows keys are done at a time: one accumulator for each pair, whose
/// lanes a transposition brings together. Returns the sum of squares of all keys; NaN and infinity survive in
/// it.
template <Type kType>
float direct_scores(const Input& key, std::int64_t at, std::int64_t count, std::int64_t depth, float scale,
                    const float* query, std::int64_t ldq, float (&scores)[kTileRows][kPanel],
                    const Stream& stream) {
  constexpr int kKeys = kLanes / kTileRows;
  Vf squares = zero();
  for (std::int64_t k = 0; k < count; k += kKeys) {
    Vf acc[kLanes];
    std::int64_t from[kKeys];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) acc[i] = zero();
#pragma GCC unroll 4
    for (int i = 0; i < kKeys; ++i) {
      from[i] = at + smaller(k + i, count - 1) * key.stride[2];
      stream.fetch(k + i);
    }
    for (std::int64_t d = 0; d < depth; d += kLanes) {
      Vf q[kTileRows];
#pragma GCC unroll 4
      for (int r = 0; r < kTileRows; ++r) q[r] = load(query + r * ldq + d);
#pragma GCC unroll 4
      for (int i = 0; i < kKeys; ++i) {
        const Vf x = mul(load_as<kType>(key.data, from[i] + d), splat(scale));
        squares = mul_add(x, x, squares);
#pragma GCC unroll 4
        for (int r = 0; r < kTileRows; ++r) acc[r * kKeys + i] = mul_add(x, q[r], acc[r * kKeys + i]);
      }
    }
    alignas(64) float lane[kLanes];
    store(lane, sum_each(acc));
    for (int r = 0; r < kTileRows; ++r)
      for (std::int64_t i = 0; i < kKeys && k + i < kPanel; ++i) scores[r][k + i] = lane[r * kKeys + i];
  }
  for (int r = 0; r < kTileRows; ++r)
    for (std::int64_t k = count; k < kPanel; ++k) scores[r][k] = 0;
  return reduce_add(squares);
}

/// output [kDirectRows][ldo] goes on with weights [kDirectRows][ldw] x values [count], kVectors vectors wide,
/// read in place.
template <Type kType, int kVectors>
void direct_values(const Input& value, std::int64_t at, std::int64_t count, const float* weights,
                   std::int64_t ldw, float* output, std::int64_t ldo, const Stream* stream) {
  Vf acc[kDirectRows][static_cast<std::size_t>(kVectors)];
#pragma GCC unroll 2
  for (int r = 0; r < kDirectRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) acc[r][v] = load(output + r * ldo + v * kLanes);
  for (std::int64_t k = 0; k < count; ++k) {
    const Vf first = splat(weights[k]);
    const Vf second = splat(weights[ldw + k]);
    if (stream) stream->fetch(k);
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

/// One panel of keys for all rows of the task, of which there are at most kGroupRows.
template <Type kType>
bool attend_direct(Run& run, std::int64_t key) {
  const Call& call = run.call;
  const Task& task = run.task;
  const Work& w = run.w;
  const std::int64_t count = smaller(kPanel, task.key_end - task.key_begin - key);
  const std::int64_t kv_head = task.head_begin / call.group;
  const std::int64_t key_at = offset_of(call.key.stride, task.batch, kv_head, task.key_begin + key);
  const std::int64_t value_at = offset_of(call.value.stride, task.batch, kv_head, task.key_begin + key);
  const Stream keys = stream_of(call.key, key_at, w.depth, count, call.value, value_at, call.value_dim);
  const Stream values = stream_of(call.value, value_at, call.value_dim, count, call.key,
                                  key_at + count * call.key.stride[2], w.depth);
  for (std::int64_t row = 0; row < run.padded_rows; row += kTileRows) {
    alignas(64) float scores[kTileRows][kPanel];
    const float squares =
        direct_scores<kType>(call.key, key_at, count, w.depth, call.scale,
                             run.queries.data + row * run.queries.stride, run.queries.stride, scores, keys);
    // The largest norm is at most the root of the sum of all squares.
    if (!(1.001f * __builtin_sqrtf(run.largest_query_square) * __builtin_sqrtf(squares) <= kLargestScore / 2))
      return false;
    if (!weigh_scores(run, row, key, scores, w.weights + row * kChunk, 0)) return false;
  }
  observe_panel(run, 0, run.padded_rows, key, 0, count);
  offer_block(run, 0, run.padded_rows, key);
  if (!call.output.data) return true;
  const std::int64_t vectors = w.value_columns / kLanes;
  for (std::int64_t row = 0; row < run.padded_rows; row += kDirectRows)
    for (std::int64_t v = 0; v < vectors;) {
      const std::int64_t left = vectors - v;
      const std::int64_t here = left >= kDirectVectors ? kDirectVectors : left >= 4 ? 4 : left >= 2 ? 2 : 1;
      direct_values_of<kType>(here)(call.value, value_at + v * kLanes, count, w.weights + row * kChunk,
                                    kChunk, w.partial + row * w.value_columns + v * kLanes, w.value_columns,
                                    row + v == 0 ? &values : nullptr);
      v += here;
    }
  return true;
}

}  // namespace heed::detail::HEED_ISA
