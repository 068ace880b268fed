// Rows of weights and score gradients by way of memory. Used if a mask cuts a panel of keys, or if scores are
// more than scale times a product.
#pragma once

#include "attention/kernels/backward/backward_workspace.hpp"
#include "attention/kernels/shared/dropout.hpp"

namespace heed::detail::HEED_ISA {

/// A block of rows against a KV block.
struct Block {
  std::int64_t row, rows;  // of the segment; rows are padded to whole tiles
  std::int64_t key, keys;  // of the segment
  bool flushed;            // scores may be so far below lse that weights underflow
};

HEED_INLINE bool touches(const RowGroup& group, std::int64_t key) {
  return group.begin < key + kPanel && group.end > key;
}

HEED_INLINE bool wants_bias(const BackwardArguments& call) {
  return call.grad_bias.data != nullptr || call.bias_sums != nullptr;
}

/// Adds the gradients of a row's biases, for keys from `key` (of the segment) on.
inline void add_bias_grads(const BackwardTaskState& state, const QueryRow& query_row, std::int64_t key,
                           const float* grads) {
  const BackwardArguments& call = state.call;
  const Task& task = state.task.rows;
  const std::int64_t count = smaller(kPanel, task.key_end - task.key_begin - key);
  const std::int64_t first = task.key_begin + key;
  if (call.bias_sums != nullptr) {
    double* to = call.bias_sums + offset_of(call.bias_stride, task.batch, query_row.head, query_row.index);
    for (std::int64_t k = 0; k < count; ++k)
      to[(first + k) * call.bias_stride[3]] += static_cast<double>(grads[k]);
  } else {
    const Output& out = call.grad_bias;
    const std::int64_t at = offset_of(out.stride, task.batch, query_row.head, query_row.index);
    for (std::int64_t k = 0; k < count; ++k) write_float(out, at + (first + k) * out.stride[3], grads[k]);
  }
}

/// Adds a row's score gradients to the sums of the keys from `key` (of the segment) on.
inline void add_to_key_sums(const BackwardTaskState& state, const QueryRow& query_row, std::int64_t key,
                            const float* grads) {
  const BackwardArguments& call = state.call;
  const Task& task = state.task.rows;
  const std::int64_t count = smaller(kPanel, task.key_end - task.key_begin - key);
  double* to = call.key_sums + (task.batch * call.heads + query_row.head) * call.forward.key_length +
               task.key_begin + key;
  for (std::int64_t k = 0; k < count; ++k) to[k] += static_cast<double>(grads[k]);
}

/// One row's numbers for a panel of keys, each [kPanel]. score_grads may be d.
struct PanelOfRow {
  float* scores;
  const float* d;  // <g, v>
  float *weights, *score_grads;
};

/// Processes one row of a tile by way of memory: scores become weights and score gradients. Returns false if
/// a score exceeds what f32 holds.
inline bool general_row(const BackwardTaskState& state, const Block& block, std::int64_t row,
                        std::int64_t key, const HeadBits& bits, const PanelOfRow& panel) {
  float *scores = panel.scores, *weights = panel.weights, *score_grads = panel.score_grads;
  const float* d = panel.d;
  const Arguments& call = state.call.forward;
  const Task& task = state.task.rows;
  const QueryRow& query_row = state.w.query_row[row];
  alignas(64) float slope[kPanel];
  alignas(64) float keep[kPanel];
  if (state.w.factor[block.row + row] == 0) {  // the row is left out, whatever its scores are
    for (std::int64_t v = 0; v < kPanel; v += kLanes) {
      store(weights + v, zero());
      store(score_grads + v, zero());
      store(scores + v, zero());
    }
    if (wants_bias(state.call) && block.row + row < state.rows) add_bias_grads(state, query_row, key, scores);
    return true;
  }
  if (!modify_scores(call, task, query_row, key, scores, slope)) return false;
  if (call.dropout.threshold != 0)
    kept_weights(call.dropout, bits, query_row.index, task.key_begin + key, keep);
  const float shift = state.w.shift[block.row + row];
  const Vf delta = splat(state.w.delta[block.row + row]);
  for (std::int64_t v = 0; v < kPanel; v += kLanes) {
    const Vf p = exp2_flushed(load(scores + v), splat(kRound - shift), splat(shift + kSmallestExponent));
    const Vf m = call.dropout.threshold != 0 ? load(keep + v) : splat(1.0f);
    Vf grad = mul(p, sub(mul(m, load(d + v)), delta));
    store(scores + v, grad);
    if (call.log2_softcap > 0 || call.score_mod) grad = mul(grad, load(slope + v));
    store(weights + v, mul(p, m));
    store(score_grads + v, grad);
  }
  if (state.call.key_sums != nullptr && block.row + row < state.rows)
    add_to_key_sums(state, query_row, key, scores);
  if (wants_bias(state.call) && block.row + row < state.rows) add_bias_grads(state, query_row, key, scores);
  return true;
}

}  // namespace heed::detail::HEED_ISA
