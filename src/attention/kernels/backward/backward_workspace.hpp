// The working memory of one thread for gradients.
#pragma once

#include "attention/kernels/backward/backward_tiles.hpp"
#include "attention/kernels/shared/backward_arguments.hpp"
#include "attention/kernels/softmax/epilogue.hpp"
#include "attention/kernels/softmax/workspace.hpp"

namespace heed::detail::HEED_ISA {

using cpu::BackwardArguments;
using cpu::BackwardTask;
using cpu::BackwardTiling;

static_assert(kHasParts == (UnitFormat::kParts > 1));
// Tuning. A block of weights and a block of score gradients, 72 KiB each, are read three times. With matrix
// tiles, a KV block is so long that repacking the rows for each one costs little.
inline constexpr std::int64_t kGradientKeys = !kHasMatrixTiles ? kKvBlock : kHasParts ? 512 : 768;
inline constexpr std::int64_t kGradientRows = !kHasMatrixTiles ? 96 : kHasParts ? 96 : 256;
static_assert(kGradientKeys <= kMaxStepPanels * kPanel);
static_assert(kGradientRows % kGroupRows == 0 && kGradientKeys % kPanel == 0);
/// By matrix tiles, score gradients of so many panels are multiplied with keys at once.
inline constexpr std::int64_t kChunkPanels = kHasParts ? kGradientKeys / kPanel : 256 / kPanel;
/// Panels, and chunks of panels, whose weights and score gradients are kept (gradient_flow.hpp).
inline constexpr int kGradientBuffers = kHasParts ? 1 : 2;

/// Up to this squared norm, no sum of products overflows, however long.
inline constexpr float kMaxGradientSquare = 0x1p60f;

struct BackwardWorkspace {
  std::int64_t depth, value_depth;      // head and value dimensions
  std::int64_t columns, value_columns;  // the same, as whole vectors
  // All rows of the segment, for one head:
  float* shift;       // an integer near lse, in units of log 2
  float* factor;      // 2^(shift - lse) / kGain: turns an unnormalised weight into a weight
  float* delta;       // (<g, out> - gradient of lse) * factor
  float* query_grad;  // [rows][columns]
  // The task's keys, as rows, or as tiles (matrix_gradients.hpp):
  float* key_grad;    // [keys][columns]
  float* value_grad;  // [keys][value_columns]
  // A KV block; matrix tiles use their format's layouts:
  float* keys;      // panels
  float* values;    // panels
  float* key_rows;  // [kGradientKeys][columns]
  float* scratch;
  // A block of rows:
  QueryRow* query_row;
  RowGroup* group;
  std::uint8_t* visible;  // [kGradientRows][visible_ld], if there are masks
  std::int64_t visible_ld;
  float* query;          // [kGradientRows][columns]
  float* grad;           // [kGradientRows][value_columns]: g * factor
  float* query_columns;  // for matrix tiles: both transposed
  float* grad_columns;
  float* weights;      // [kGradientRows][kGradientKeys], unnormalised
  float* score_grads;  // same shape
  // The same for matrix tiles, of kGradientBuffers panels and chunks (gradient_flow.hpp):
  float* panel_operands;  // weights, multiplied by factor, and score gradients
  float* chunk_operands;  // score gradients by rows
  std::size_t bytes;
};

/// Lays out the memory at `base`; with base == nullptr, only counts bytes.
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
  // Floats per element of an operand, times two.
  constexpr std::int64_t kHalves = 2 * UnitFormat::kParts / UnitFormat::kElements;
  const std::int64_t lanes = UnitFormat::kParts * lanes_of<UnitFormat>(w.depth);
  const std::int64_t value_lanes = UnitFormat::kParts * lanes_of<UnitFormat>(w.value_depth);
  const std::int64_t widest = larger(w.columns, w.value_columns);
  w.shift = floats(padded_rows);
  w.factor = floats(padded_rows);
  w.delta = floats(padded_rows);
  w.query_grad = floats(padded_rows * w.columns);
  w.key_grad = floats(padded_keys * w.columns);
  w.value_grad = floats(padded_keys * w.value_columns);
  w.keys = floats(kGradientKeys * lanes);
  w.values = floats(kGradientKeys * value_lanes);
  w.key_rows = floats(kGradientKeys * w.columns * kHalves / 2);
  w.query_row = memory.take<QueryRow>(kGradientRows);
  w.group = memory.take<RowGroup>(kGradientRows / kGroupRows);
  w.visible_ld = has_masks(call) ? visible_bytes(kGradientKeys) : 0;
  w.visible = memory.take<std::uint8_t>(kGradientRows * w.visible_ld);
  if (kHasMatrixTiles) {
    w.scratch = floats(kGroupRows * larger(widest, kPanel) + kLanes * larger(lanes, value_lanes));
    w.query = floats(kGradientRows * lanes);
    w.grad = floats(kGradientRows * value_lanes);
    w.query_columns = floats(kGradientRows * w.columns * kHalves / 2);
    w.grad_columns = floats(kGradientRows * w.value_columns * kHalves / 2);
    constexpr std::int64_t kPanelFloats = kGradientRows * kPanel * UnitFormat::kWeightParts / 2;
    w.panel_operands = floats(kGradientBuffers * 2 * kPanelFloats);
    w.chunk_operands = floats(kGradientBuffers * kChunkPanels * kPanelFloats);
    w.weights = w.score_grads = nullptr;
  } else {
    w.scratch = floats(kLanes * widest);
    w.query = floats(kGradientRows * w.columns);
    w.grad = floats(kGradientRows * w.value_columns);
    w.query_columns = w.grad_columns = w.panel_operands = w.chunk_operands = nullptr;
    w.weights = floats(kGradientRows * kGradientKeys);
    w.score_grads = floats(kGradientRows * kGradientKeys);
  }
  w.bytes = memory.bytes();
  return w;
}

inline std::size_t backward_bytes(const BackwardArguments& call, std::int64_t rows, std::int64_t keys) {
  return lay_out_backward(call.forward, rows, keys, nullptr).bytes;
}

/// One task in progress.
struct BackwardTaskState {
  const BackwardArguments& call;
  const BackwardTask& task;
  BackwardWorkspace w;
  std::int64_t rows;     // rows of the segment
  bool modifies_scores;  // every tile goes through modify_scores
};

inline bool wants_query_grads(const BackwardTaskState& state) {
  return state.task.query_part != nullptr || state.call.grad_query.data != nullptr;
}

inline void clear_floats(float* x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += kLanes) store(x + i, zero());
}

/// Returns sum_c g_c * out_c for one row. `scratch` holds two rows.
inline float dot_rows(const Operand& a, std::int64_t a_at, const Operand& b, std::int64_t b_at,
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

/// Whether the driver marked the row as too large for f32.
HEED_INLINE bool is_left_out(const Arguments& call, std::int64_t batch, std::int64_t head,
                             std::int64_t index) {
  return call.row_status != nullptr &&
         call.row_status[(batch * call.heads + head) * call.query_length + index] != cpu::RowStatus::done;
}

/// Computes shift, factor and delta of all rows of the segment for one head. Returns false if a number is not
/// finite. Rows without keys (lse -inf) and rows that are left out get factor 0, so they contribute nothing.
inline bool start_head(const BackwardTaskState& state, std::int64_t head) {
  const BackwardArguments& call = state.call;
  const BackwardWorkspace& w = state.w;
  const std::int64_t padded = round_up(state.rows, kGroupRows);
  const std::int64_t batch = state.task.rows.batch, first = state.task.rows.row_begin;
  const HeadRows grads = rows_of(call.grad_output, batch, head, first);
  const HeadRows outputs = rows_of(call.output, batch, head, first);
  float total = 0;
  for (std::int64_t r = 0; r < padded; ++r) {
    w.shift[r] = w.factor[r] = w.delta[r] = 0;
    if (r >= state.rows) continue;
    if (const std::int64_t ahead = r + kGroupRows; ahead < state.rows) {
      fetch_row({grads, ahead, w.value_depth}, 0);
      fetch_row({outputs, ahead, w.value_depth}, 0);
    }
    const std::int64_t index = first + r;
    if (is_left_out(call.forward, batch, head, index)) continue;
    const float lse =
        read_float(call.lse.data, call.lse.dtype, offset_of(call.lse.stride, batch, head, index));
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
      const double bits =
          static_cast<double>(lse) / kLn2 -
          alibi_offset(call.forward, batch, head, index + rows.position_offset, keys_of(rows));
      if (!(bits > -kMaxScore && bits < kMaxScore)) return false;
      shift = __builtin_rint(bits);
      factor = __builtin_exp2(shift - bits) / kGainExact;
    }
    float delta = dot_rows(call.grad_output, grads.at(r), call.output, outputs.at(r), w.value_depth,
                           w.value_columns, w.scratch);
    if (call.grad_lse.data)
      delta -= read_float(call.grad_lse.data, call.grad_lse.dtype,
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

}  // namespace heed::detail::HEED_ISA
