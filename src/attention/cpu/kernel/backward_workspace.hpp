// The working memory of one thread for gradients, and what is packed into it.
#pragma once

#include "attention/cpu/kernel/backward_arguments.hpp"
#include "attention/cpu/kernel/backward_tiles.hpp"
#include "attention/cpu/kernel/epilogue.hpp"
#include "attention/cpu/kernel/workspace.hpp"

namespace heed::detail::HEED_ISA {

using cpu::BackwardArguments;
using cpu::BackwardTask;
using cpu::BackwardTiling;

// Tuning. A block of weights and one of score gradients, 72 KiB each, are read three times.
inline constexpr std::int64_t kGradientKeys = kKvBlock;
inline constexpr std::int64_t kGradientRows = 96;
static_assert(kGradientRows % kGroupRows == 0);

/// Norms squared up to which no sum of products overflows, however long.
inline constexpr float kLargestGradientSquare = 0x1p60f;

struct BackwardWorkspace {
  std::int64_t depth, value_depth;      // head and value dimensions
  std::int64_t columns, value_columns;  // the same, as whole vectors
  // Of all rows of the segment, one head:
  float* shift;       // an integer near lse, in units of log 2
  float* factor;      // 2^(shift - lse) / kGain: what makes an unnormalised weight a weight
  float* delta;       // (<g, out> - gradient of lse) * factor
  float* query_grad;  // [rows][columns]
  // Of the task's keys:
  float* key_grad;    // [keys][columns]
  float* value_grad;  // [keys][value_columns]
  // Of a KV block:
  float* keys;      // panels
  float* values;    // panels
  float* key_rows;  // [kGradientKeys][columns]
  float* scratch;
  // Of a block of rows:
  QueryRow* query_row;
  RowGroup* group;
  float* query;        // [kGradientRows][columns]
  float* grad;         // [kGradientRows][value_columns]: g * factor
  float* weights;      // [kGradientRows][kGradientKeys]: unnormalised
  float* score_grads;  // the same
  std::size_t bytes;
};

/// Lays out the memory at `base`; with base == nullptr it only counts.
inline BackwardWorkspace lay_out_backward(const Arguments& call, std::int64_t rows, std::int64_t keys,
                                          void* base) {
  BackwardWorkspace w;
  Memory memory(base);
  const auto floats = [&](std::int64_t count) { return memory.floats(count); };
  w.depth = call.head_dim;
  w.value_depth = call.value_dim;
  w.columns = round_up(w.depth, kLanes);
  w.value_columns = round_up(w.value_depth, kLanes);
  const std::int64_t padded_rows = round_up(rows, kGroupRows);
  const std::int64_t padded_keys = round_up(keys, kPanel);
  w.shift = floats(padded_rows);
  w.factor = floats(padded_rows);
  w.delta = floats(padded_rows);
  w.query_grad = floats(padded_rows * w.columns);
  w.key_grad = floats(padded_keys * w.columns);
  w.value_grad = floats(padded_keys * w.value_columns);
  w.keys = floats(kGradientKeys * w.depth);
  w.values = floats(kGradientKeys * w.value_depth);
  w.key_rows = floats(kGradientKeys * w.columns);
  w.scratch = floats(kLanes * larger(w.columns, w.value_columns));
  w.query_row = memory.take<QueryRow>(kGradientRows);
  w.group = memory.take<RowGroup>(kGradientRows / kGroupRows);
  w.query = floats(kGradientRows * w.columns);
  w.grad = floats(kGradientRows * w.value_columns);
  w.weights = floats(kGradientRows * kGradientKeys);
  w.score_grads = floats(kGradientRows * kGradientKeys);
  w.bytes = memory.bytes();
  return w;
}

inline std::size_t backward_bytes(const BackwardArguments& call, std::int64_t rows, std::int64_t keys) {
  return lay_out_backward(call.forward, rows, keys, nullptr).bytes;
}

/// One task under way.
struct BackwardTaskState {
  const BackwardArguments& call;
  const BackwardTask& task;
  BackwardWorkspace w;
  std::int64_t rows;     // of the segment
  bool modifies_scores;  // every tile goes through modify_scores
};

inline void clear_floats(float* x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += kLanes) store(x + i, zero());
}

/// sum_c g_c * out_c of one row; `scratch` holds two rows.
inline float dot_rows(const Input& a, std::int64_t a_at, const Input& b, std::int64_t b_at,
                      std::int64_t count, std::int64_t padded, float* scratch) {
  float* x = scratch;
  float* y = scratch + padded;
  read_row(a, a_at, a.stride[3], count, x);
  read_row(b, b_at, b.stride[3], count, y);
  for (std::int64_t c = count; c < padded; ++c) x[c] = y[c] = 0;
  Vf sum = zero();
  for (std::int64_t c = 0; c < padded; c += kLanes) sum = mul_add(load(x + c), load(y + c), sum);
  return reduce_add(sum);
}

/// Whether the driver found that f32 does not hold the row's numbers.
HEED_INLINE bool is_left_out(const Arguments& call, std::int64_t batch, std::int64_t head,
                             std::int64_t index) {
  return call.row_status != nullptr &&
         call.row_status[(batch * call.heads + head) * call.query_length + index] != cpu::RowStatus::done;
}

/// Shift, factor and delta of all rows of the segment for one head. False where a number is not finite. A row
/// without keys (lse -inf) and one that is left out have factor 0, so that they add nothing anywhere.
inline bool start_head(const BackwardTaskState& state, std::int64_t head) {
  const BackwardArguments& call = state.call;
  const BackwardWorkspace& w = state.w;
  const std::int64_t padded = round_up(state.rows, kGroupRows);
  float total = 0;
  for (std::int64_t r = 0; r < padded; ++r) {
    w.shift[r] = w.factor[r] = w.delta[r] = 0;
    if (r >= state.rows) continue;
    const std::int64_t index = state.task.rows.row_begin + r;
    const std::int64_t batch = state.task.rows.batch;
    if (is_left_out(call.forward, batch, head, index)) continue;
    const float lse =
        read_float(call.lse.data, call.lse.type, offset_of(call.lse.stride, batch, head, index));
    double shift = 0;
    double factor = 0;
    if (call.recomputes_lse[state.task.segment * call.heads + head] != 0) {
      const std::int64_t at = offset_of(call.forward.row_shift.stride, batch, head, index);
      shift = static_cast<double>(static_cast<const float*>(call.forward.row_shift.data)[at]);
      factor = static_cast<double>(static_cast<const float*>(call.forward.row_inverse.data)[at]);
      if (factor == 0 && lse == -__builtin_inff()) continue;
    } else {
      if (lse == -__builtin_inff()) continue;
      const Task& rows = state.task.rows;
      const double bits = static_cast<double>(lse) / kLn2 - alibi_offset(call.forward, batch, head,
                                                                         index + rows.position_offset,
                                                                         rows.key_end - rows.key_begin);
      if (!(bits > -kLargestScore && bits < kLargestScore)) return false;
      shift = __builtin_rint(bits);
      factor = __builtin_exp2(shift - bits) / kGainExact;
    }
    float delta = dot_rows(call.grad_output, offset_of(call.grad_output.stride, batch, head, index),
                           call.output, offset_of(call.output.stride, batch, head, index), w.value_depth,
                           w.value_columns, w.scratch);
    if (call.grad_lse.data)
      delta -= read_float(call.grad_lse.data, call.grad_lse.type,
                          offset_of(call.grad_lse.stride, batch, head, index));
    if (state.task.split == 0 && call.delta.data)
      write_float(call.delta, offset_of(call.delta.stride, batch, head, index), delta);
    w.shift[r] = static_cast<float>(shift);
    w.factor[r] = static_cast<float>(factor);
    w.delta[r] = static_cast<float>(factor * static_cast<double>(delta));
    total += delta * delta;
  }
  clear_floats(w.query_grad, padded * w.columns);
  return total < 0x1p120f;
}

/// Query rows, queries and output gradients of the block of rows from `row` (of the segment) on. Returns the
/// largest square of a query's norm, or a negative number where numbers are too large.
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
    // Rows beyond the last, and those without keys, whatever they hold.
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
  return total < kLargestGradientSquare ? largest : -1.0f;
}

/// Puts zeros in place of keys whose numbers, or whose value's, are beyond what f32 sums hold: every row that
/// sees one is left out, and no other row's zero weight may meet a NaN. Returns the largest square of the
/// others.
inline float clear_large_keys(const BackwardTaskState& state, const KvSource& kv, std::int64_t first,
                              std::int64_t count) {
  const BackwardWorkspace& w = state.w;
  float largest = 0;
  for (std::int64_t k = 0; k < count; ++k) {
    const float key_square = pack_query(kv.keys.tensor, kv.keys.at(first + k), w.depth,
                                        state.call.forward.scale, w.scratch, w.columns);
    const float value_square = pack_query(kv.values.tensor, kv.values.at(first + k), w.value_depth, 1.0f,
                                          w.scratch, w.value_columns);
    if (key_square < kLargestGradientSquare && value_square < kLargestGradientSquare) {
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

/// Packs keys [key, key + count) of the segment three ways; those of the scores carry the scale, as in the
/// forward pass, so that scores round as those in the lse did. Returns the largest square of a key's norm, or
/// a negative number.
inline float pack_kv_block(const BackwardTaskState& state, std::int64_t key, std::int64_t count) {
  const Arguments& call = state.call.forward;
  const BackwardWorkspace& w = state.w;
  const KvSource kv = kv_source_of(call, state.task.rows);
  const Measure keys = pack_keys(kv.keys, key, count, w.depth, call.scale, w.keys, w.scratch, w.columns);
  const Measure values =
      pack_keys(kv.values, key, count, w.value_depth, 1.0f, w.values, w.scratch, w.value_columns);
  for (std::int64_t k = 0; k < count; ++k)
    pack_query(kv.keys.tensor, kv.keys.at(key + k), w.depth, 1.0f, w.key_rows + k * w.columns, w.columns);
  const bool in_range = keys.in_range && values.in_range && keys.largest_square < kLargestGradientSquare &&
                        values.largest_square < kLargestGradientSquare;
  if (in_range) return keys.largest_square;
  return call.row_status == nullptr ? -1.0f : clear_large_keys(state, kv, key, count);
}

}  // namespace heed::detail::HEED_ISA
