// Packing for the gradients' products by lanes: queries and output gradients of a block of rows, and a KV
// block.
#pragma once

#include "attention/kernels/backward/backward_workspace.hpp"

namespace heed::detail::HEED_ISA {

/// Loads query rows, queries and output gradients of the block of rows from `row` (of the segment) on.
/// Returns the largest squared norm of a query, or a negative number if numbers are too large.
inline float load_queries(const BackwardTaskState& state, std::int64_t head, std::int64_t row,
                          std::int64_t rows) {
  const BackwardArguments& call = state.call;
  const Arguments& forward = call.forward;
  const BackwardWorkspace& w = state.w;
  float largest = 0;
  float total = 0;
  const std::int64_t padded = round_up(rows, kTileRows);
  for (std::int64_t r = 0; r < padded; ++r) {
    const std::int64_t index = state.task.rows.row_begin + row + smaller(r, rows - 1);
    const std::int64_t batch = state.task.rows.batch;
    w.query_row[r] = query_row_of(forward, state.task.rows, head, index);
    // Rows beyond the last one, and rows without keys, become 0 whatever they hold.
    if (r >= rows || w.factor[row + r] == 0) {
      clear_floats(w.query + r * w.columns, w.columns);
      clear_floats(w.grad + r * w.value_columns, w.value_columns);
      continue;
    }
    const float squares = pack_query(forward.query, offset_of(forward.query.stride, batch, head, index),
                                     w.depth, 1.0f, w.query + r * w.columns, w.columns);
    largest = squares > largest ? squares : largest;
    total += squares;
    total += pack_query(call.grad_output, offset_of(call.grad_output.stride, batch, head, index),
                        w.value_depth, w.factor[row + r], w.grad + r * w.value_columns, w.value_columns);
  }
  for (std::int64_t r = 0; r < padded; r += kGroupRows)
    w.group[r / kGroupRows] = group_of(w.query_row + r, smaller(kGroupRows, padded - r), true);
  return total < kMaxGradientSquare ? largest : -1.0f;
}

/// Zeroes keys that are, or whose values are, too large for f32 sums. Every row that sees one is left out,
/// and the zero weights of other rows must not meet a NaN. Returns the largest squared norm of the other
/// keys.
inline float clear_large_keys(const BackwardTaskState& state, const KvSource& kv, std::int64_t first,
                              std::int64_t count) {
  const BackwardWorkspace& w = state.w;
  float largest = 0;
  for (std::int64_t k = 0; k < count; ++k) {
    const float key_square = pack_query(kv.keys.tensor, kv.keys.at(first + k), w.depth,
                                        state.call.forward.log2_scale, w.scratch, w.columns);
    const float value_square = pack_query(kv.values.tensor, kv.values.at(first + k), w.value_depth, 1.0f,
                                          w.scratch, w.value_columns);
    if (key_square < kMaxGradientSquare && value_square < kMaxGradientSquare) {
      largest = key_square > largest ? key_square : largest;
      continue;
    }
    float* key = w.keys + k / kPanel * (w.depth * kPanel) + k % kPanel;
    for (std::int64_t d = 0; d < w.depth; ++d) key[d * kPanel] = 0;
    float* value = w.values + k / kPanel * (w.value_depth * kPanel) + k % kPanel;
    for (std::int64_t c = 0; c < w.value_depth; ++c) value[c * kPanel] = 0;
    clear_floats(w.key_rows + k * w.columns, w.columns);
  }
  return largest;
}

/// Packs keys [key, key + count) of the segment in three layouts. The layout for scores carries the scale, as
/// in the forward pass, so that scores round like those in the lse. Returns the largest squared norm of a
/// key, or a negative number.
inline float pack_kv_block(const BackwardTaskState& state, std::int64_t key, std::int64_t count) {
  const Arguments& call = state.call.forward;
  const BackwardWorkspace& w = state.w;
  const KvSource kv = kv_source_of(call, state.task.rows);
  const Measure keys =
      pack_keys({kv.keys, key, count, w.depth}, call.log2_scale, w.keys, w.scratch, w.columns);
  const Measure values =
      pack_keys({kv.values, key, count, w.value_depth}, 1.0f, w.values, w.scratch, w.value_columns);
  for (std::int64_t k = 0; k < count; ++k)
    pack_query(kv.keys.tensor, kv.keys.at(key + k), w.depth, 1.0f, w.key_rows + k * w.columns, w.columns);
  const bool in_range = keys.in_range && values.in_range && keys.largest_square < kMaxGradientSquare &&
                        values.largest_square < kMaxGradientSquare;
  if (in_range) return keys.largest_square;
  return call.row_status == nullptr ? -1.0f : clear_large_keys(state, kv, key, count);
}

}  // namespace heed::detail::HEED_ISA
