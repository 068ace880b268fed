// Scores of one group of rows by matrix tiles, from keys in place. Each key is read once, so packing it would
// cost more than the product. Tiles take keys as rows and queries as columns, and the result is transposed.
// Every score is the same sum, in the same order, as with packed keys.
#pragma once

#include "attention/kernels/softmax/matrix_tiles.hpp"

namespace heed::detail::HEED_ISA {

/// Transposes the queries, which find_queries packed as rows of tiles, to [row / 16][lane][16].
inline void load_query_columns(const TaskState& state) {
  const Workspace& w = state.w;
  for (std::int64_t row = 0; row < state.padded_rows; row += kMatrixRows)
    for (std::int64_t lane = 0; lane < w.key_lanes; lane += kLanes) {
      Vf block[kLanes];
#pragma GCC unroll 16
      for (int r = 0; r < kLanes; ++r) block[r] = load(query_vector(w, row + r, lane));
      transpose(block);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i)
        store(w.query_columns + (row / kMatrixRows * w.key_lanes + lane + i) * kMatrixRows, block[i]);
    }
}

/// Products of `keys` keys, one or two tiles, with all rows: key_scores [key][kGroupRows]. `key` counts from
/// the KV block's first key.
template <class Format>
void multiply_keys(const TaskState& state, float* rows, std::int64_t row_stride, std::int64_t key,
                   std::int64_t keys) {
  const Workspace& w = state.w;
  const TileMatrix a = {rows, row_stride, kMatrixRows * row_stride, kLanes};
  const TileMatrix b = {w.query_columns, kMatrixRows, w.key_lanes * kMatrixRows, kLanes * kMatrixRows};
  multiply_group<typename Format::Elements, false>({keys, a, b,
                                                    result_rows(w.key_scores + key * kGroupRows, kGroupRows),
                                                    w.key_lanes / kLanes, state.padded_rows / kMatrixRows});
}

/// The same for the keys of a KV block that some row may see. Keys beyond the last one are zeros. Tiles that
/// are not whole, and rows that are not whole floats apart, are copied.
template <class Format>
void multiply_kv_block(const TaskState& state, std::int64_t kv_block_key, std::int64_t count) {
  const Workspace& w = state.w;
  const HeadRows keys = even_rows(state, true, kv_block_key, count).rows;
  const RowGroup& group = w.group[0];
  const std::int64_t stride = keys.row_stride() / Format::kElements;
  const bool in_place = stride * Format::kElements == keys.row_stride();
  const auto row_of = [&](std::int64_t key) {
    return reinterpret_cast<float*>(const_cast<char*>(keys.address(kv_block_key + key)));
  };
  std::int64_t key = larger(0, group.begin - kv_block_key) / kMatrixRows * kMatrixRows;
  const std::int64_t end = smaller(count, group.end - kv_block_key);
  while (in_place && key + kMatrixRows <= end) {
    const std::int64_t here = end - key >= kGroupRows ? kGroupRows : kMatrixRows;
    const std::int64_t width = state.call.cache == nullptr ? w.depth : 0;
    for (std::int64_t r = key; r < key + here; ++r) fetch_row({keys, kv_block_key + kKeysAhead, width}, r);
    multiply_keys<Format>(state, row_of(key), stride, key, here);
    key += here;
  }
  for (; key < end; key += kMatrixRows) {
    const std::int64_t last = smaller(kMatrixRows, count - key);
    for (std::int64_t r = 0; r < kMatrixRows; ++r)
      for (std::int64_t d = 0; d < w.key_lanes; d += kLanes)
        store(w.scratch + r * w.key_lanes + d, r < last ? load(row_of(key + r) + d) : zero());
    multiply_keys<Format>(state, w.scratch, w.key_lanes, key, kMatrixRows);
  }
}

/// Transposes a panel's scores to rows. Returns false if a score is not finite, or larger than weights can be
/// computed from; a partial sum that overflowed makes it not finite.
inline bool transpose_key_scores(const TaskState& state, std::int64_t done, MatrixScores& scores) {
  const Vf limit = splat(kMaxScore), scale = splat(state.call.log2_scale);
  std::uint32_t in_range = kAllLanes;
  for (std::int64_t row = 0; row < state.padded_rows; row += kMatrixRows)
    for (int v = 0; v < kPanelVectors; ++v) {
      const float* from = state.w.key_scores + (done + v * kLanes) * kGroupRows + row;
      Vf block[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        block[i] = load(from + i * kGroupRows);
        in_range &= bits_of(greater_equal(limit, absolute(mul(block[i], scale))));
      }
      transpose(block);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) store(scores[v][row + i], block[i]);
    }
  return in_range == kAllLanes;
}

/// Computes the weights of a group of `rows` rows from `row` on, for one panel.
template <class Format>
void matrix_score_panel(TaskState& state, std::int64_t row, std::int64_t rows, const PanelKeys& panel) {
  const RowGroup& group = state.w.group[row / kGroupRows];
  if (group.begin >= panel.key + kPanel || group.end <= panel.key) return;
  alignas(64) MatrixScores scores;
  const bool in_range = transpose_key_scores(state, panel.done, scores);
  softmax_panel<Format>(state, row, rows, panel, scores, in_range);
}

}  // namespace heed::detail::HEED_ISA
