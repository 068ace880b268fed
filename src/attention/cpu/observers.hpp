// What is asked of the rows of a task besides the output, from the first chunk of keys to the map:
// observe.hpp for blocks of weights.
#pragma once

#include "attention/cpu/observe.hpp"
#include "attention/cpu/work.hpp"

namespace heed::detail::HEED_ISA {

HEED_INLINE void scale_row(float* x, std::int64_t count, float factor) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(x + i, mul(load(x + i), splat(factor)));
  for (; i < count; ++i) x[i] *= factor;
}

HEED_INLINE bool observes(const Call& call) {
  return call.top_k > 0 || call.distance.data || call.map_columns > 0;
}

inline void clear_observed(const Run& run) {
  const Call& call = run.call;
  const Work& w = run.w;
  for (std::int64_t r = 0; r < run.rows; ++r) {
    if (call.distance.data) store(w.distance + r * kLanes, zero());
    if (call.top_k > 0) clear(top_of(call, w, r));
  }
  for (std::int64_t i = 0; i < call.map_columns * w.bin_rows; i += kLanes) store(w.bins + i, zero());
}

/// Multiplies what has been gathered for a row by a power of two.
inline void scale_observed(const Run& run, std::int64_t row, float factor) {
  const Call& call = run.call;
  const Work& w = run.w;
  if (call.distance.data) scale_row(w.distance + row * kLanes, kLanes, factor);
  if (call.map_columns > 0)
    for (std::int64_t c = run.columns.begin; c < run.columns.end; ++c) w.bins[c * w.bin_rows + row] *= factor;
  if (call.top_k > 0) {
    const TopK top = top_of(call, w, row);
    for (std::int64_t i = 0; i < list_room(top.capacity); ++i)
      if (top.weight[i] > 0) top.weight[i] *= factor;
  }
}

/// Rows [row, row + rows) of a block see keys of a chunk, by whole vectors: those that a group of them sees.
/// What other groups' tiles did not write of these keys is set to 0.
inline KeyRange complete_weights(const Run& run, std::int64_t first_row, std::int64_t row, std::int64_t rows,
                                 std::int64_t chunk_key, std::int64_t count) {
  const Group* groups = run.w.group + first_row / kGroupRows;
  const std::int64_t last = (row + rows - 1) / kGroupRows;
  KeyRange all = {INT64_MAX, 0};
  KeyRange common = {0, INT64_MAX};
  for (std::int64_t g = row / kGroupRows; g <= last; ++g) {
    const KeyRange keys = written_keys(groups[g], chunk_key, count);
    if (keys.begin < keys.end) all = {smaller(all.begin, keys.begin), larger(all.end, keys.end)};
    common = {larger(common.begin, keys.begin), smaller(common.end, keys.end)};
  }
  if (all.begin >= all.end || (common.begin == all.begin && common.end == all.end)) return all;
  for (std::int64_t r = row; r < row + rows; ++r) {
    const KeyRange keys = written_keys(groups[r / kGroupRows], chunk_key, count);
    float* weights = run.w.weights + r * kChunk;
    for (std::int64_t k = all.begin; k < all.end; k += kLanes)
      if (k < keys.begin || k >= keys.end) store(weights + k, zero());
  }
  return all;
}

inline void add_to_bins(Run& run, std::int64_t row, const float* weights, const KeyRange& keys,
                        std::int64_t chunk_key) {
  const Call& call = run.call;
  const Columns columns = {call.map_columns, call.key_length};
  const std::int64_t key = run.task.key_begin + chunk_key;
  const auto add_rows = columns.hold_a_vector() ? add_to_wide_bins : add_to_narrow_bins;
  const std::int64_t last =
      add_rows(run.w.bins + row, run.w.bin_rows, columns, weights, kChunk, keys.begin, keys.end, key);
  if (run.columns.end == 0) run.columns.begin = columns.of(key + keys.begin);
  run.columns.begin = smaller(run.columns.begin, columns.of(key + keys.begin));
  run.columns.end = larger(run.columns.end, last + 1);
}

/// Looks at the weights of a block for one chunk.
inline void observe_block(Run& run, std::int64_t row, std::int64_t rows, std::int64_t chunk_key,
                          std::int64_t count) {
  const Call& call = run.call;
  const Work& w = run.w;
  if (!observes(call)) return;
  for (std::int64_t first = 0; first < rows; first += kLanes) {
    const std::int64_t here = smaller(kLanes, rows - first);
    const KeyRange keys = complete_weights(run, row, first, here, chunk_key, count);
    if (keys.begin >= keys.end) continue;
    if (call.map_columns > 0) add_to_bins(run, row + first, w.weights + first * kChunk, keys, chunk_key);
    for (std::int64_t r = first; r < first + here && row + r < run.rows; ++r) {
      const std::int64_t at = row + r;
      const float* weights = w.weights + r * kChunk + keys.begin;
      const std::int64_t key = chunk_key + keys.begin;
      if (call.top_k > 0) offer(top_of(call, w, at), weights, keys.end - keys.begin, key);
      if (call.distance.data)
        add_distance(w.distance + at * kLanes, weights, keys.end - keys.begin, w.site[at].position, key);
    }
  }
}

/// Adds bins of rows [begin, end), times each row's factor, to a row of the map.
inline void add_rows_to_map(const Run& run, std::int64_t begin, std::int64_t end, const float* factors,
                            float* map, std::int64_t stride) {
  const Work& w = run.w;
  for (std::int64_t c = run.columns.begin; c < run.columns.end; c += kLanes) {
    const std::int64_t here = smaller(kLanes, run.columns.end - c);
    Vf sum[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) sum[i] = zero();
    for (std::int64_t r = begin / kLanes * kLanes; r < end; r += kLanes) {
      // Rows beyond the range, whose bins may hold anything, have factors of 0.
      const Vf factor = load(factors + r);
      const Mask counts = greater(factor, zero());
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        const float* bins = w.bins + smaller(c + i, run.columns.end - 1) * w.bin_rows + r;
        sum[i] = mul_add(keep(counts, load(bins)), factor, sum[i]);
      }
    }
    alignas(64) float column[kLanes];
    store(column, sums_of_lanes(sum));
    for (std::int64_t i = 0; i < here; ++i) map[(c + i) * stride] += column[i];
  }
}

/// Adds the bins of all rows, divided by their sums, to the map. Tasks that share a row of the map run one
/// after the other.
inline void add_to_map(const Run& run) {
  const Call& call = run.call;
  const Work& w = run.w;
  const auto map_row = [&](std::int64_t r) { return w.site[r].index * call.map_rows / call.query_length; };
  float* factors = w.bin_factors;
  for (std::int64_t r = 0; r < w.bin_rows; ++r) factors[r] = 0;
  for (std::int64_t begin = 0, end = 0; begin < run.rows; begin = end) {
    for (end = begin; end < run.rows && map_row(end) == map_row(begin); ++end) factors[end] = w.inverse[end];
    float* map = static_cast<float*>(call.map.data) +
                 offset_of(call.map.stride, run.task.batch, w.site[begin].head, map_row(begin));
    add_rows_to_map(run, begin, end, factors, map, call.map.stride[3]);
    for (std::int64_t r = begin; r < end; ++r) factors[r] = 0;
  }
}

}  // namespace heed::detail::HEED_ISA
