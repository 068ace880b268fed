// Gradients without the Lq x Lk matrix, in one pass with five products (FlashAttention-2, Dao 2023, algorithm
// 2, keys outermost). A task is a range of keys of one key head, against all rows of all query heads that
// read it. Only this task adds to the gradients of its keys, in the order of heads and rows, and to its share
// of the query gradient. So there are no atomics, and bits do not depend on the threads.
//
// With g_i the gradient of row i's output, and lse_i from the forward pass:
//
//   p_ij = exp(s_ij - lse_i)                 delta_i = <g_i, out_i> - (gradient of lse_i)
//   ds_ij = p_ij * (m_ij <g_i, v_j> - delta_i)          m: the dropout factor of the weight
//   dv_j = sum_i p_ij m_ij g_i     dq_i = scale * sum_j ds_ij k_j     dk_j = scale * sum_i ds_ij q_i
//
// Unnormalised weights are f_i^-1 p_ij, with a factor f_i near 1 / kGain (backward_workspace.hpp). The lane
// kernels multiply g_i and delta_i by f_i in advance, at no cost, so their products come out right. Matrix
// tiles keep g_i as given, and multiply weights and products with g_i by f_i.
#pragma once

#include "attention/kernels/backward/gradient_flow.hpp"
#include "attention/kernels/backward/lane_gradients.hpp"
#include "attention/kernels/softmax/epilogue.hpp"
#include "attention/kernels/softmax/plan_tiling.hpp"

namespace heed::detail::HEED_ISA {

using cpu::QueryParts;
using cpu::Status;

/// Computes weights, score gradients, and the three products of them, for a block of rows and a KV block.
template <class Format>
bool backward_block(const BackwardTaskState& state, const Block& block, const HeadBits& bits) {
  if constexpr (Format::kMatrixTiles) {
    return GradientFlow<Format>(state, block, bits).run();
  } else {
    if (!recompute_weights(state, block, bits)) return false;
    if (wants_query_grads(state)) add_query_grads(state, block);
    add_key_grads(state, block);
    return true;
  }
}

template <class Format>
float load_rows(const BackwardTaskState& state, std::int64_t head, std::int64_t row, std::int64_t rows) {
  if constexpr (Format::kMatrixTiles)
    return load_matrix_queries<Format>(state, head, row, rows);
  else
    return load_queries(state, head, row, rows);
}

/// Packs a KV block. Returns the largest squared norm of a key, or a negative number if numbers are too
/// large.
template <class Format>
float pack_block(const BackwardTaskState& state, std::int64_t key, std::int64_t keys) {
  if constexpr (Format::kMatrixTiles)
    return pack_matrix_kv_block<Format>(state, key, keys);
  else
    return pack_kv_block(state, key, keys);
}

/// Whether rows [row, row + rows) of a head may see some of these keys.
inline bool may_see(const BackwardTaskState& state, std::int64_t head, std::int64_t row, std::int64_t rows,
                    const KeySpan& keys) {
  // Positions rise with the rows. So the first and the last row tell whether any row's position allows a key.
  const Arguments& call = state.call.forward;
  const Task& task = state.task.rows;
  const std::int64_t first = task.row_begin + row;
  return query_row_of(call, task, head, first).key_begin < keys.key + keys.count &&
         query_row_of(call, task, head, first + rows - 1).key_end > keys.key &&
         coverage_of_head(call, task, head, first, first + rows, keys) != Coverage::empty;
}

/// Narrows a block's rows to the keys of a KV block that masks allow. Returns false if there are none.
inline bool sees_block(const BackwardTaskState& state, std::int64_t head, std::int64_t row, std::int64_t rows,
                       std::int64_t padded, const KeySpan& keys) {
  if (!has_masks(state.call.forward)) return true;
  const BackwardWorkspace& w = state.w;
  Task task = state.task.rows;
  task.head_begin = head;
  task.head_count = 1;
  task.row_begin += row;
  task.row_end = task.row_begin + rows;
  return mask_rows(
      {state.call.forward, task, w.query_row, w.group, rows, padded, nullptr, w.visible, w.visible_ld}, keys);
}

/// Processes the rows of one head against keys [key, key + keys).
template <class Format>
bool backward_kv_block(const BackwardTaskState& state, std::int64_t head, std::int64_t key, std::int64_t keys,
                       const HeadBits& bits) {
  const BackwardWorkspace& w = state.w;
  float largest_key = 0;
  bool packed = false;
  for (std::int64_t row = 0; row < state.rows; row += kGradientRows) {
    const std::int64_t rows = smaller(kGradientRows, state.rows - row);
    const std::int64_t padded = round_up(rows, kHasMatrixTiles ? kGroupRows : kTileRows);
    if (!may_see(state, head, row, rows, {key, keys})) continue;
    if (!packed) largest_key = pack_block<Format>(state, key, keys);
    packed = true;
    if (largest_key < 0) return false;
    const float largest_query = load_rows<Format>(state, head, row, rows);
    if (largest_query < 0) return false;
    if (!sees_block(state, head, row, rows, padded, {key, keys})) continue;
    const float bound = 1.001f * __builtin_sqrtf(largest_query) * __builtin_sqrtf(largest_key);
    if (!(bound <= kMaxScore / 2)) return false;
    float highest = 0;
    for (std::int64_t r = 0; r < rows; ++r) highest = w.shift[row + r] > highest ? w.shift[row + r] : highest;
    if (!backward_block<Format>(state, {row, padded, key, keys, bound + highest > 120.0f}, bits))
      return false;
  }
  return true;
}

inline void copy_floats(const float* from, std::int64_t count, float* to) {
  std::int64_t c = 0;
  for (; c + kLanes <= count; c += kLanes) store(to + c, load(from + c));
  if (c < count) store_first(to + c, count - c, load(from + c));
}

/// Writes the gradient of a head's rows. If it is a sum over several tasks, writes the raw sums instead.
inline void write_query_grads(const BackwardTaskState& state, std::int64_t head) {
  const BackwardArguments& call = state.call;
  const BackwardWorkspace& w = state.w;
  const Task& task = state.task.rows;
  if (!wants_query_grads(state)) return;
  for (std::int64_t r = 0; r < state.rows; ++r) {
    const std::int64_t index = task.row_begin + r;
    float* from = w.query_grad + r * w.columns;
    if (state.task.query_part != nullptr)
      copy_floats(from, w.depth,
                  state.task.query_part + (r * task.head_count + head - task.head_begin) * w.depth);
    else
      write_output(call.grad_query, offset_of(call.grad_query.stride, task.batch, head, index), from, w.depth,
                   call.scale);
  }
}

inline void write_key_grads(const BackwardTaskState& state) {
  const BackwardArguments& call = state.call;
  const BackwardWorkspace& w = state.w;
  const Task& task = state.task.rows;
  const std::int64_t kv_head = task.head_begin / call.forward.group;
  for (std::int64_t k = 0; k < state.task.key_end - state.task.key_begin; ++k) {
    const std::int64_t key = task.key_begin + state.task.key_begin + k;
    const auto row_of = [&](float* sums, std::int64_t columns, float* rows) {
      if (!kHasMatrixTiles) return sums + k * columns;
      if (k % kLanes == 0) transpose_key_grads(sums, k, columns, rows);
      return rows + k % kLanes * columns;
    };
    if (call.grad_key.data)
      write_output(call.grad_key, offset_of(call.grad_key.stride, task.batch, kv_head, key),
                   row_of(w.key_grad, w.columns, w.scratch), w.depth, call.scale);
    if (call.grad_value.data)
      write_output(call.grad_value, offset_of(call.grad_value.stride, task.batch, kv_head, key),
                   row_of(w.value_grad, w.value_columns, w.scratch + kLanes * w.columns), w.value_depth,
                   1.0f);
  }
}

inline void count_head(const BackwardTaskState& state, std::int64_t head) {
  const bool anew = state.call.recomputes_lse[state.task.segment * state.call.heads + head] != 0;
  std::int64_t* paths = state.call.forward.paths;
  count_path(paths, anew ? Path::backward_recomputed_lse : Path::backward_plain);
  if (state.rows == state.call.forward.query_length) return;
  count_path(paths, anew ? Path::backward_sequence_recomputed_lse : Path::backward_sequence_plain);
}

/// Whether this unit computes a call's gradients. Matrix tiles refuse calls with numbers that they would
/// round.
inline bool takes_backward(const BackwardArguments& call) {
  if (kComputesEverything) return true;
  const auto is_served = [](const Output& out) { return out.data == nullptr || out.dtype == kMatrixType; };
  return kHasMatrixTiles && call.forward.query.dtype == kMatrixType &&
         call.grad_output.dtype == kMatrixType && is_served(call.grad_query) && is_served(call.grad_key) &&
         is_served(call.grad_value) && call.forward.query_length >= kMatrixLeastRows;
}

inline Status backward(const BackwardArguments& call, const BackwardTiling& tiling, const BackwardTask& task,
                       void* workspace) {
  [[maybe_unused]] const MatrixTiles tiles;
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
      if (!backward_kv_block<UnitFormat>(state, head, key, keys, bits)) return Status::out_of_range;
    }
    write_query_grads(state, head);
  }
  write_key_grads(state);
  return Status::done;
}

/// grad_query row = scale * the sum over key splits, in order. With one split, the result has the bits that
/// the task itself would have written.
inline void add_query_parts(const BackwardArguments& call, const QueryParts& parts, std::int64_t batch,
                            std::int64_t head, std::int64_t row, std::int64_t rows, void* workspace) {
  const std::int64_t depth = call.forward.head_dim;
  float* sum = static_cast<float*>(workspace);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < depth; c += kLanes) {
      const float* part = parts.data + r * parts.row_stride + c;
      const auto load_part = [&](const float* from) {
        return depth - c < kLanes ? load_first(from, depth - c) : load(from);
      };
      Vf total = load_part(part);
      for (std::int64_t split = 1; split < parts.splits; ++split)
        total = add(total, load_part(part += parts.split_stride));
      store(sum + c, total);
    }
    write_output(call.grad_query, offset_of(call.grad_query.stride, batch, head, row + r), sum, depth,
                 call.scale);
  }
}

}  // namespace heed::detail::HEED_ISA
