// Gradients without the Lq x Lk matrix, in one pass with five products (FlashAttention-2, Dao 2023,
// algorithm 2, keys outermost). A task is some keys of one key head against all rows of all query heads that
// read it; it alone adds to the gradients of its keys, in the order of heads and rows, and to its share of
// the query's gradient. So no atomics, and bits that do not depend on the threads.
//
// With g_i the output's gradient of row i and lse_i from the forward pass:
//
//   p_ij = exp(s_ij - lse_i)                 delta_i = <g_i, out_i> - (gradient of lse_i)
//   ds_ij = p_ij * (m_ij <g_i, v_j> - delta_i)          m: what dropout multiplies the weight by
//   dv_j = sum_i p_ij m_ij g_i     dq_i = scale * sum_j ds_ij k_j     dk_j = scale * sum_i ds_ij q_i
//
// Unnormalised weights are f_i^-1 p_ij with a factor f_i near 1 / kGain (backward_workspace.hpp). It is
// multiplied into g_i and delta_i beforehand, where it costs nothing: products then come out right.
#pragma once

#include "attention/cpu/kernel/backward_workspace.hpp"
#include "attention/cpu/kernel/dropout.hpp"
#include "attention/cpu/kernel/epilogue.hpp"

namespace heed::detail::HEED_ISA {

using cpu::Status;

/// A block of rows against a KV block.
struct Block {
  std::int64_t row, rows;  // of the segment; rows as padded to whole tiles
  std::int64_t key, keys;  // of the segment
  bool flushed;            // scores may lie so far below lse that weights run out of exponents
};

HEED_INLINE bool wants_bias(const BackwardArguments& call) {
  return call.grad_bias.data != nullptr || call.bias_sums != nullptr;
}

/// The gradients of a row's biases, for keys from `key` (of the segment) on.
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

/// One row of a tile by way of memory: scores [kPanel] become weights and score gradients. `d` holds <g, v>.
/// False where a score is beyond what f32 holds.
inline bool general_row(const BackwardTaskState& state, const Block& block, std::int64_t row,
                        std::int64_t key, const HeadBits& bits, float* scores, const float* d, float* weights,
                        float* score_grads) {
  const Arguments& call = state.call.forward;
  const Task& task = state.task.rows;
  const QueryRow& query_row = state.w.query_row[row];
  alignas(64) float slope[kPanel];
  alignas(64) float keep[kPanel];
  if (state.w.factor[block.row + row] == 0) {  // it takes no part, whatever its scores are
    for (std::int64_t v = 0; v < kPanel; v += kLanes) {
      store(weights + v, zero());
      store(score_grads + v, zero());
      store(scores + v, zero());
    }
    if (wants_bias(state.call) && block.row + row < state.rows) add_bias_grads(state, query_row, key, scores);
    return true;
  }
  if (!modify_scores(call, task.batch, query_row, task.key_begin, task.key_end - task.key_begin, key, scores,
                     slope))
    return false;
  if (call.dropout.threshold != 0)
    kept_weights(call.dropout, bits, query_row.index, task.key_begin + key, keep);
  const float shift = state.w.shift[block.row + row];
  const Vf delta = splat(state.w.delta[block.row + row]);
  for (std::int64_t v = 0; v < kPanel; v += kLanes) {
    const Vf p = exp2_flushed(load(scores + v), splat(kRound - shift), splat(shift + kSmallestExponent));
    const Vf m = call.dropout.threshold != 0 ? load(keep + v) : splat(1.0f);
    Vf grad = mul(p, sub(mul(m, load(d + v)), delta));
    store(scores + v, grad);
    if (call.softcap > 0) grad = mul(grad, load(slope + v));
    store(weights + v, mul(p, m));
    store(score_grads + v, grad);
  }
  if (wants_bias(state.call) && block.row + row < state.rows) add_bias_grads(state, query_row, key, scores);
  return true;
}

inline bool general_tile(const BackwardTaskState& state, const Block& block, const GradientTile& t,
                         std::int64_t row, std::int64_t key, const HeadBits& bits) {
  alignas(64) float scores[kTileRows][kPanel];
  alignas(64) float d[kTileRows][kPanel];
  ScoreTile tile;
  const auto spill = [&](float(&to)[kTileRows][kPanel]) {
#pragma GCC unroll 4
    for (int r = 0; r < kTileRows; ++r)
#pragma GCC unroll 3
      for (int v = 0; v < kPanelVectors; ++v) store(to[r] + v * kLanes, tile[r][v]);
  };
  clear(tile);
  accumulate<F32Format>(tile, t.query + row * t.query_ld, t.query_ld, t.keys, t.depth);
  spill(scores);
  clear(tile);
  accumulate<F32Format>(tile, t.grad + row * t.grad_ld, t.grad_ld, t.values, t.value_depth);
  spill(d);
  for (int r = 0; r < kTileRows; ++r)
    if (!general_row(state, block, row + r, key, bits, scores[r], d[r], t.weights + (row + r) * t.ld,
                     t.score_grads + (row + r) * t.ld))
      return false;
  return true;
}

HEED_INLINE bool touches(const RowGroup& group, std::int64_t key) {
  return group.begin < key + kPanel && group.end > key;
}

/// Weights and score gradients of a block, but for tiles that no row may see.
inline bool recompute_weights(const BackwardTaskState& state, const Block& block, const HeadBits& bits) {
  const BackwardWorkspace& w = state.w;
  const std::int64_t groups = (block.rows + kGroupRows - 1) / kGroupRows;
  const GradientRows rows = {w.shift + block.row, w.delta + block.row};
  for (std::int64_t p = 0; p * kPanel < block.keys; ++p) {
    const std::int64_t key = block.key + p * kPanel;
    const std::int64_t key_end = smaller(key + kPanel, block.key + block.keys);
    const GradientTile tile = {w.query,
                               w.grad,
                               w.columns,
                               w.value_columns,
                               w.keys + p * kPanel * w.depth,
                               w.values + p * kPanel * w.value_depth,
                               w.depth,
                               w.value_depth,
                               w.weights + p * kPanel,
                               w.score_grads + p * kPanel,
                               kGradientKeys};
    const auto is_plain = [&](const RowGroup& g) {
      return !state.modifies_scores && g.full_begin <= key && g.full_end >= key_end;
    };
    for (std::int64_t g = 0; g < groups;) {
      std::int64_t end = g + 1;
      const auto last_row = [&] { return smaller(end * kGroupRows, block.rows); };
      if (touches(w.group[g], key)) {
        if (is_plain(w.group[g])) {
          while (end < groups && is_plain(w.group[end])) ++end;
          count_path(state.call.forward.paths, block.flushed ? Path::backward_flushed : Path::backward_tiles);
          const auto tiles = block.flushed ? gradient_tiles<true> : gradient_tiles<false>;
          tiles(tile, rows, g * kGroupRows, last_row());
        } else {
          count_path(state.call.forward.paths, Path::backward_masked);
          for (std::int64_t row = g * kGroupRows; row < last_row(); row += kTileRows)
            if (!general_tile(state, block, tile, row, key, bits)) return false;
        }
      }
      g = end;
    }
  }
  return true;
}

/// dq += ds k, group by group: scores exist from the panel of a group's first key to its last key.
inline void add_query_grads(const BackwardTaskState& state, const Block& block) {
  const BackwardWorkspace& w = state.w;
  for (std::int64_t r = 0; r < block.rows; r += kGroupRows) {
    const RowGroup& group = w.group[r / kGroupRows];
    const std::int64_t begin = larger(0, group.begin - block.key) / kPanel * kPanel;
    const std::int64_t end = smaller(block.keys, group.end - block.key);
    if (begin >= end) continue;
    product<false>(w.score_grads + r * kGradientKeys + begin, kGradientKeys, w.key_rows + begin * w.columns,
                   w.columns, end - begin, smaller(kGroupRows, block.rows - r), w.columns,
                   w.query_grad + (block.row + r) * w.columns, w.columns);
  }
}

/// dv += p^T g and dk += ds^T q, panel by panel, over the groups that see it.
inline void add_key_grads(const BackwardTaskState& state, const Block& block) {
  const BackwardWorkspace& w = state.w;
  const std::int64_t groups = (block.rows + kGroupRows - 1) / kGroupRows;
  for (std::int64_t p = 0; p * kPanel < block.keys; ++p) {
    const std::int64_t key = block.key + p * kPanel;
    const std::int64_t at = key - state.task.key_begin;
    for (std::int64_t g = 0; g < groups; ++g) {
      if (!touches(w.group[g], key)) continue;
      std::int64_t end = g + 1;
      while (end < groups && touches(w.group[end], key)) ++end;
      const std::int64_t row = g * kGroupRows;
      const std::int64_t rows = smaller(end * kGroupRows, block.rows) - row;
      const std::int64_t from = row * kGradientKeys + p * kPanel;
      if (state.call.grad_value.data)
        product<true>(w.weights + from, kGradientKeys, w.grad + row * w.value_columns, w.value_columns, rows,
                      kPanel, w.value_columns, w.value_grad + at * w.value_columns, w.value_columns);
      if (state.call.grad_key.data)
        product<true>(w.score_grads + from, kGradientKeys, w.query + row * w.columns, w.columns, rows, kPanel,
                      w.columns, w.key_grad + at * w.columns, w.columns);
      g = end;
    }
  }
}

/// The rows of one head against one KV block, packed.
inline bool backward_kv_block(const BackwardTaskState& state, std::int64_t head, std::int64_t key,
                              std::int64_t keys, float largest_key, const HeadBits& bits) {
  const Arguments& call = state.call.forward;
  const BackwardWorkspace& w = state.w;
  for (std::int64_t row = 0; row < state.rows; row += kGradientRows) {
    const std::int64_t rows = smaller(kGradientRows, state.rows - row);
    // Query rows rise with the rows, so the first and the last tell whether any row sees the KV block.
    const std::int64_t first = state.task.rows.row_begin + row;
    if (query_row_of(call, state.task.rows, head, first).key_begin >= key + keys ||
        query_row_of(call, state.task.rows, head, first + rows - 1).key_end <= key)
      continue;
    const float largest_query = load_queries(state, head, row, rows);
    if (largest_query < 0) return false;
    const float bound = 1.001f * __builtin_sqrtf(largest_query) * __builtin_sqrtf(largest_key);
    if (!(bound <= kLargestScore / 2)) return false;
    float highest = 0;
    for (std::int64_t r = 0; r < rows; ++r) highest = w.shift[row + r] > highest ? w.shift[row + r] : highest;
    const Block block = {row, round_up(rows, kTileRows), key, keys, bound + highest > 120.0f};
    if (!recompute_weights(state, block, bits)) return false;
    if (state.call.grad_query.data) add_query_grads(state, block);
    add_key_grads(state, block);
  }
  return true;
}

/// Writes rows of sums, times `factor`.
inline void write_query_grads(const BackwardTaskState& state, std::int64_t head) {
  const BackwardArguments& call = state.call;
  const BackwardWorkspace& w = state.w;
  const Task& task = state.task.rows;
  if (!call.grad_query.data) return;
  for (std::int64_t r = 0; r < state.rows; ++r) {
    const std::int64_t index = task.row_begin + r;
    float* from = w.query_grad + r * w.columns;
    if (call.query_splits != nullptr) {
      const std::int64_t row =
          (state.task.split * call.batch_heads + task.batch * call.heads + head) * call.forward.query_length +
          index;
      for (std::int64_t c = 0; c < w.columns; c += kLanes)
        store(call.query_splits + row * w.columns + c, load(from + c));
    } else {
      write_output(call.grad_query, offset_of(call.grad_query.stride, task.batch, head, index), from, w.depth,
                   call.scale);
    }
  }
}

inline void write_key_grads(const BackwardTaskState& state) {
  const BackwardArguments& call = state.call;
  const BackwardWorkspace& w = state.w;
  const Task& task = state.task.rows;
  const std::int64_t kv_head = task.head_begin / call.forward.group;
  for (std::int64_t k = 0; k < state.task.key_end - state.task.key_begin; ++k) {
    const std::int64_t key = task.key_begin + state.task.key_begin + k;
    if (call.grad_key.data)
      write_output(call.grad_key, offset_of(call.grad_key.stride, task.batch, kv_head, key),
                   w.key_grad + k * w.columns, w.depth, call.scale);
    if (call.grad_value.data)
      write_output(call.grad_value, offset_of(call.grad_value.stride, task.batch, kv_head, key),
                   w.value_grad + k * w.value_columns, w.value_depth, 1.0f);
  }
}

inline void count_head(const BackwardTaskState& state, std::int64_t head) {
  const bool anew = state.call.recomputes_lse[state.task.segment * state.call.heads + head] != 0;
  std::int64_t* paths = state.call.forward.paths;
  count_path(paths, anew ? Path::backward_recomputed_lse : Path::backward_plain);
  if (state.rows == state.call.forward.query_length) return;
  count_path(paths, anew ? Path::backward_sequence_recomputed_lse : Path::backward_sequence_plain);
}

inline Status backward(const BackwardArguments& call, const BackwardTiling& tiling, const BackwardTask& task,
                       void* workspace) {
  const Task& rows = task.rows;
  const BackwardTaskState state = {call, task,
                                   lay_out_backward(call.forward, tiling.rows, tiling.keys, workspace),
                                   rows.row_end - rows.row_begin,
                                   has_score_modifiers(call.forward) || call.forward.dropout.threshold != 0};
  const std::int64_t padded_keys = round_up(task.key_end - task.key_begin, kPanel);
  clear_floats(state.w.key_grad, padded_keys * state.w.columns);
  clear_floats(state.w.value_grad, padded_keys * state.w.value_columns);
  for (std::int64_t head = rows.head_begin; head < rows.head_begin + rows.head_count; ++head) {
    if (!start_head(state, head)) return Status::out_of_range;
    count_head(state, head);
    const HeadBits bits = bits_of_head(call.forward.dropout, rows.batch, head);
    for (std::int64_t key = task.key_begin; key < task.key_end; key += kGradientKeys) {
      const std::int64_t keys = smaller(kGradientKeys, task.key_end - key);
      const float largest_key = pack_kv_block(state, key, keys);
      if (largest_key < 0 || !backward_kv_block(state, head, key, keys, largest_key, bits))
        return Status::out_of_range;
    }
    write_query_grads(state, head);
  }
  write_key_grads(state);
  return Status::done;
}

/// grad_query row = scale * the sum over key splits, in their order.
inline void add_query_splits(const BackwardArguments& call, std::int64_t splits, std::int64_t batch,
                             std::int64_t head, std::int64_t row_begin, std::int64_t row_end,
                             void* workspace) {
  const std::int64_t columns = round_up(call.forward.head_dim, kLanes);
  float* sum = static_cast<float*>(workspace);
  for (std::int64_t index = row_begin; index < row_end; ++index) {
    for (std::int64_t c = 0; c < columns; c += kLanes) {
      Vf total = zero();
      for (std::int64_t split = 0; split < splits; ++split) {
        const std::int64_t row =
            (split * call.batch_heads + batch * call.heads + head) * call.forward.query_length + index;
        total = add(total, load(call.query_splits + row * columns + c));
      }
      store(sum + c, total);
    }
    write_output(call.grad_query, offset_of(call.grad_query.stride, batch, head, index), sum,
                 call.forward.head_dim, call.scale);
  }
}

}  // namespace heed::detail::HEED_ISA
