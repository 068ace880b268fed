// Distance and map, computed from the weights of a panel while they are in the first-level cache
// (map_bins.hpp has the loops over weights).
#pragma once

#include "attention/kernels/softmax/map_bins.hpp"
#include "attention/kernels/softmax/top_k.hpp"

namespace heed::detail::HEED_ISA {

HEED_INLINE bool has_panel_statistics(const Arguments& call) {
  return call.distance.data || call.map_size.columns > 0;
}

/// Multiplies a row's bins of the span by `factor`.
inline void scale_bins(const TaskState& state, std::int64_t row, float factor) {
  for (std::int64_t c = state.columns.begin; c < state.columns.end; ++c)
    state.w.bins[c * state.w.bin_rows + row] *= factor;
}

inline void clear_bins(const TaskState& state) {
  for (std::int64_t i = 0; i < state.call.map_size.columns * state.w.bin_rows; i += kLanes)
    store(state.w.bins + i, zero());
}

/// Called before a span: sets aside the last column of the earlier spans, because the span may begin in it.
inline void carry_bins(const TaskState& state, const KeyRange& merged) {
  const Workspace& w = state.w;
  for (std::int64_t r = 0; merged.end > 0 && r < w.bin_rows; r += kLanes) {
    float* bins = w.bins + (merged.end - 1) * w.bin_rows + r;
    store(w.carried_bins + r, load(bins));
    store(bins, zero());
  }
}

/// Called after a span: merges a row's bins of the span into the earlier columns `merged`, as its state was
/// merged.
inline void merge_bins(const TaskState& state, std::int64_t row, const KeyRange& merged,
                       const MergeFactors& factors) {
  const Workspace& w = state.w;
  if (factors.from != 1) scale_bins(state, row, factors.from);
  if (merged.end == 0) return;
  if (factors.into != 1)
    for (std::int64_t c = merged.begin; c < merged.end - 1; ++c) w.bins[c * w.bin_rows + row] *= factors.into;
  w.bins[(merged.end - 1) * w.bin_rows + row] += w.carried_bins[row] * factors.into;
}

/// Completes the weights of a panel of `count` keys, for up to kLanes rows of a block that begins at row
/// `block`. Tiles that no row of their group may see were not computed; their weights become 0, as do weights
/// beyond the panel's keys. Returns false if no weights were computed.
inline bool complete_panel(const TaskState& state, std::int64_t block, std::int64_t row, std::int64_t rows,
                           std::int64_t key, std::int64_t count, float* weights) {
  const RowGroup* groups = state.w.group + block / kGroupRows;
  std::int64_t least = kPanel;
  std::int64_t most = 0;
  for (std::int64_t g = row / kGroupRows; g * kGroupRows < row + rows; ++g) {
    const std::int64_t written = written_keys(groups[g], key, count).end;
    least = smaller(least, written);
    most = larger(most, written);
  }
  if (most == 0) return false;
  if (least == kPanel) return true;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t k = written_keys(groups[(row + r) / kGroupRows], key, count).end; k < kPanel;
         k += kLanes)
      store(weights + r * kKvBlock + k, zero());
  return true;
}

inline PanelColumns start_columns(TaskState& state, std::int64_t panel_key) {
  const PanelColumns columns =
      columns_of(state.call.map_size.columns, state.call.key_length, state.task.key_begin + panel_key);
  if (state.columns.end == 0) state.columns.begin = columns.column[0];
  state.columns = {smaller(state.columns.begin, columns.column[0]),
                   larger(state.columns.end, columns.last() + 1)};
  return columns;
}

/// Adds the distance of a few rows for one panel; rows of `weights_at` are kKvBlock apart.
inline void add_distances(const TaskState& state, std::int64_t row, std::int64_t rows, std::int64_t key,
                          const float* weights_at) {
  // Vector stores may alias anything, so the loop's inputs are read beforehand.
  float* distances = state.w.softmax.distance + row * kLanes;
  const QueryRow* query_rows = state.w.query_row + row;
  const KeyPositions keys = keys_of(state.task);
  for (std::int64_t r = 0; r < rows; ++r) {
    Vf weights[kPanelVectors];
#pragma GCC unroll 3
    for (int v = 0; v < kPanelVectors; ++v) weights[v] = load(weights_at + r * kKvBlock + v * kLanes);
    add_distance(distances + r * kLanes, weights, query_rows[r].position, keys, key);
  }
}

/// Adds distance and map of a block's rows for one panel, while its weights are in the first-level cache.
/// `panel` holds the weights of the panel's keys, rows kKvBlock apart.
inline void add_panel_statistics(TaskState& state, std::int64_t row, std::int64_t rows, std::int64_t key,
                                 float* panel, std::int64_t count) {
  const Arguments& call = state.call;
  const Workspace& w = state.w;
  if (!has_panel_statistics(call)) return;
  PanelColumns columns;
  columns.wide = false;
  if (call.map_size.columns > 0) columns = start_columns(state, key);
  if (call.map_size.columns > 0) count_path(call.paths, columns.wide ? Path::map_wide : Path::map_narrow);
  const auto add_to_bins = columns.wide ? add_to_wide_bins : add_to_narrow_bins;
  for (std::int64_t first = 0; first < rows; first += kLanes) {
    const std::int64_t here = smaller(kLanes, rows - first);
    const std::int64_t real = smaller(here, state.rows - row - first);
    float* weights = panel + first * kKvBlock;
    if (!complete_panel(state, row, first, here, key, count, weights)) continue;
    if (call.map_size.columns > 0) add_to_bins(w.bins + row + first, w.bin_rows, columns, weights, kKvBlock);
    if (call.distance.data) add_distances(state, row + first, real, key, weights);
  }
}

/// map [kLanes columns] += sum; only the first `count` columns exist.
HEED_INLINE void add_to_map_row(float* map, std::int64_t stride, Vf sum, std::int64_t count) {
  if (stride == 1 && count >= kLanes) return add_to(map, sum);
  alignas(64) float column[kLanes];
  store(column, sum);
  for (std::int64_t i = 0; i < count && i < kLanes; ++i) map[i * stride] += column[i];
}

/// Divides the bins of kLanes rows from `row` on by the rows' sums and adds them to the map. The bins are
/// transposed from columns to rows, and rows of the same map row are summed first. `map` [rows]: the map row
/// of each row.
inline void add_rows_to_map(const TaskState& state, std::int64_t row, std::int64_t rows,
                            float* const (&map)[kLanes]) {
  const Workspace& w = state.w;
  const std::int64_t stride = state.call.map.stride[3];
  const Vf inverse = load(w.inverse + row);
  for (std::int64_t c = state.columns.begin; c < state.columns.end; c += kLanes) {
    Vf block[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i)
      block[i] = mul(load(w.bins + smaller(c + i, state.columns.end - 1) * w.bin_rows + row), inverse);
    transpose(block);
    alignas(64) float of_row[kLanes * kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) store(of_row + i * kLanes, block[i]);
    for (std::int64_t r = 0; r < rows;) {
      float* to = map[r];
      Vf sum = load(of_row + r * kLanes);
      for (++r; r < rows && map[r] == to; ++r) sum = add(sum, load(of_row + r * kLanes));
      add_to_map_row(to + c * stride, stride, sum, state.columns.end - c);
    }
  }
}

/// Adds the bins of all rows to the map. Tasks that share a map row run one after the other.
inline void add_to_map(const TaskState& state) {
  const Arguments& call = state.call;
  for (std::int64_t row = 0; row < state.rows; row += kLanes) {
    const std::int64_t rows = smaller(kLanes, state.rows - row);
    float* map[kLanes];
    for (std::int64_t r = 0; r < rows; ++r) {
      const QueryRow& query_row = state.w.query_row[row + r];
      map[r] = static_cast<float*>(call.map.data) +
               offset_of(call.map.stride, state.task.batch, query_row.head,
                         query_row.index * call.map_size.rows / call.query_length);
    }
    add_rows_to_map(state, row, rows, map);
  }
}

}  // namespace heed::detail::HEED_ISA
