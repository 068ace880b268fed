// Distance and map, computed from the weights of a KV block while they are in the cache. Weights are
// unnormalised (kGain * 2^(score - shift)) and are divided by their sum at the end. When a row's shift grows,
// the sums so far are scaled with it (rescale() in softmax_state.hpp, scale_bins() in row_statistics.hpp).
#pragma once

#include "attention/kernels/shared/pack.hpp"
#include "attention/kernels/shared/visible_keys.hpp"

namespace heed::detail::HEED_ISA {

/// sums[kLanes] += weight * |position - p_j| over a panel of keys from `key` on.
HEED_INLINE void add_distance(float* sums, const Vf (&weights)[kPanelVectors], std::int64_t position,
                              const KeyPositions& keys, std::int64_t key) {
  alignas(64) float gaps[kPanel];
  position_gaps(keys, position, key, gaps);
  Vf sum = load(sums);
#pragma GCC unroll 3
  for (int v = 0; v < kPanelVectors; ++v) sum = mul_add(weights[v], absolute(load(gaps + v * kLanes)), sum);
  store(sums, sum);
}

/// The map columns that the keys of a panel fall into. The first `end[0]` keys fall into `column[0]`, those
/// from there to `end[1]` into `column[1]`, … Key j of the tensor falls into column floor(j * columns /
/// keys).
struct PanelColumns {
  std::int64_t count;
  std::int64_t column[kPanel], end[kPanel];
  bool wide;  // every column holds at least a vector of keys

  std::int64_t last() const { return column[count - 1]; }
};

/// Returns the columns of the panel from `key` (of the tensor) on.
inline PanelColumns columns_of(std::int64_t columns, std::int64_t keys, std::int64_t key) {
  PanelColumns panel;
  panel.count = 0;
  panel.wide = keys >= columns * kLanes;
  std::int64_t end = 0;
  do {
    const std::int64_t column = (key + end) * columns / keys;
    // The next column's first key is the smallest j with floor(j * columns / keys) = column + 1.
    end = ((column + 1) * keys + columns - 1) / columns - key;
    if (key + end >= keys) end = kPanel;
    panel.column[panel.count] = column;
    panel.end[panel.count++] = smaller(end, kPanel);
  } while (end < kPanel);
  return panel;
}

/// Lane r of the result is the sum of the lanes of vector r.
HEED_INLINE Vf sums_of_lanes(Vf (&rows)[kLanes]) {
  transpose(rows);
  Vf sum = rows[0];
#pragma GCC unroll 16
  for (int i = 1; i < kLanes; ++i) sum = add(sum, rows[i]);
  return sum;
}

HEED_INLINE void add_to(float* bins, Vf x) { store(bins, add(load(bins), x)); }

/// bins [columns][stride] += weights [kLanes][ld] of kLanes rows for a panel of keys. A column's bins are
/// contiguous, one per row. Columns are wide: a vector meets at most two of them.
inline void add_to_wide_bins(float* bins, std::int64_t stride, const PanelColumns& columns,
                             const float* weights, std::int64_t ld) {
  std::int64_t i = 0;
  Vf sum[kLanes];
#pragma GCC unroll 16
  for (int r = 0; r < kLanes; ++r) sum[r] = zero();
  for (std::int64_t k = 0; k < kPanel; k += kLanes) {
    if (columns.end[i] >= k + kLanes) {
#pragma GCC unroll 16
      for (int r = 0; r < kLanes; ++r) sum[r] = add(sum[r], load(weights + r * ld + k));
      continue;
    }
    const Vf lane = lane_numbers();
    const Vf end = splat(static_cast<float>(columns.end[i] - k));
#pragma GCC unroll 16
    for (int r = 0; r < kLanes; ++r)
      sum[r] = add(sum[r], keep(greater(end, lane), load(weights + r * ld + k)));
    add_to(bins + columns.column[i++] * stride, sums_of_lanes(sum));
#pragma GCC unroll 16
    for (int r = 0; r < kLanes; ++r) sum[r] = keep(greater_equal(lane, end), load(weights + r * ld + k));
  }
  add_to(bins + columns.column[i] * stride, sums_of_lanes(sum));
}

/// The same for columns of fewer keys. A vector of each row at a time is transposed, to one vector of rows
/// per key.
inline void add_to_narrow_bins(float* bins, std::int64_t stride, const PanelColumns& columns,
                               const float* weights, std::int64_t ld) {
  alignas(64) float of_key[kPanel * kLanes];
  for (std::int64_t k = 0; k < kPanel; k += kLanes) {
    Vf block[kLanes];
#pragma GCC unroll 16
    for (int r = 0; r < kLanes; ++r) block[r] = load(weights + r * ld + k);
    transpose(block);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) store(of_key + (k + i) * kLanes, block[i]);
  }
  std::int64_t key = 0;
  for (std::int64_t i = 0; i < columns.count; ++i) {
    Vf sum = zero();
    for (; key < columns.end[i]; ++key) sum = add(sum, load(of_key + key * kLanes));
    add_to(bins + columns.column[i] * stride, sum);
  }
}

}  // namespace heed::detail::HEED_ISA
