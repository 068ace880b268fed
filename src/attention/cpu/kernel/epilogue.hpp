// The end of a task: sums become results, in the caller's memory, of the caller's type and strides.
#pragma once

#include "attention/cpu/kernel/row_statistics.hpp"
#include "attention/cpu/kernel/score_modifiers.hpp"
#include "attention/cpu/kernel/workspace.hpp"

namespace heed::detail::HEED_ISA {

inline void write_float(const Output& out, std::int64_t at, float x) {
  switch (out.type) {
    case Type::f64:
      static_cast<double*>(out.data)[at] = static_cast<double>(x);
      break;
    case Type::f32:
      static_cast<float*>(out.data)[at] = x;
      break;
    case Type::bf16:
      static_cast<std::uint16_t*>(out.data)[at] = to_bf16(x);
      break;
    default:
      static_cast<std::uint16_t*>(out.data)[at] = to_half(x);
      break;
  }
}

inline void write_at(const Output& out, std::int64_t batch, const QueryRow& query_row, float x) {
  if (out.data) write_float(out, offset_of(out.stride, batch, query_row.head, query_row.index), x);
}

/// Writes `count` floats from `at` on.
inline void write_floats(const Output& out, std::int64_t at, const float* row, std::int64_t count) {
  if (out.stride[3] != 1 || (out.type != Type::bf16 && out.type != Type::f16)) {
    for (std::int64_t c = 0; c < count; ++c) write_float(out, at + c * out.stride[3], row[c]);
    return;
  }
  auto* to = static_cast<std::uint16_t*>(out.data) + at;
  std::int64_t c = 0;
  if (out.type == Type::bf16) {  // a loop that compilers turn into vectors
    for (; c < count; ++c) to[c] = to_bf16(row[c]);
  } else {
    for (; c + kLanes <= count; c += kLanes) store_f16(to + c, load(row + c));
  }
  for (; c < count; ++c) to[c] = to_half(row[c]);
}

/// out row = `row` [whole vectors] * factor, which `row` then holds too where `out` is not of floats. Returns
/// zeros, or a NaN where a number is not finite: values, or sums of them, were beyond what f32 holds.
inline Vf write_output(const Output& out, std::int64_t at, float* row, std::int64_t count, float factor) {
  const Vf f = splat(factor);
  const bool direct = out.type == Type::f32 && out.stride[3] == 1;
  float* to = direct ? static_cast<float*>(out.data) + at : row;
  Vf wrong = zero();
  std::int64_t c = 0;
  for (; c + kLanes <= count; c += kLanes) {
    const Vf x = mul(load(row + c), f);
    store(to + c, x);
    wrong = mul_add(x, zero(), wrong);
  }
  if (c < count) {
    const Vf x = mul(load(row + c), f);
    store_first(to + c, count - c, x);
    wrong = mul_add(x, zero(), wrong);
  }
  if (!direct) write_floats(out, at, row, count);
  return wrong;
}

/// Keys that a mask or a bias forbids.
inline bool is_forbidden(const TaskState& state, const QueryRow& query_row, std::int64_t key) {
  const Arguments& call = state.call;
  const std::int64_t absolute_key = state.task.key_begin + key;
  const auto at = [&](const Input& x) {
    return offset_of(x.stride, state.task.batch, query_row.head, query_row.index) +
           absolute_key * x.stride[3];
  };
  if (call.mask.data && static_cast<const std::uint8_t*>(call.mask.data)[at(call.mask)] == 0) return true;
  return call.bias.data && read_float(call.bias.data, call.bias.type, at(call.bias)) == -__builtin_inff();
}

/// Copies a list, whose entries are kLanes apart, to state.w.list, and goes on with allowed keys of weight 0
/// where fewer than K have a larger one (their weights ran below what f32 holds): by rising key, as equal
/// weights are ordered. The last keys are -1 where there are not so many.
inline void complete_top(const TaskState& state, const QueryRow& query_row, const CandidateColumns& from) {
  const CandidateColumns& list = state.w.list;
  const std::int64_t capacity = state.call.top_k;
  std::int64_t heavy = 0;
  for (; heavy < capacity && from.weight[heavy * kLanes] > 0; ++heavy) {
    list.weight[heavy] = from.weight[heavy * kLanes];
    list.key[heavy] = from.key[heavy * kLanes];
  }
  for (std::int64_t i = heavy; i < capacity; ++i) {
    list.weight[i] = 0;
    list.key[i] = -1;
  }
  std::int64_t filled = heavy;
  for (std::int64_t key = query_row.key_begin; key < query_row.key_end && filled < capacity; ++key) {
    bool listed = false;
    for (std::int64_t i = 0; i < heavy && !listed; ++i) listed = list.key[i] == key;
    if (!listed && !is_forbidden(state, query_row, key)) list.key[filled++] = static_cast<std::int32_t>(key);
  }
}

/// Writes the list of a row: where it lies, or completed in state.w.list.
inline void write_top(const TaskState& state, std::int64_t row, float inverse) {
  const Arguments& call = state.call;
  const QueryRow& query_row = state.w.query_row[row];
  CandidateColumns list = lists_of(state.w, row);
  list = {list.weight + row % kLanes, list.key + row % kLanes};
  std::int64_t ld = kLanes;
  if (!(list.weight[(call.top_k - 1) * ld] > 0)) {
    count_path(call.paths, Path::top_k_completed);
    complete_top(state, query_row, list);
    list = state.w.list;
    ld = 1;
  }
  if (call.top_k_index.data) {
    const std::int64_t stride = call.top_k_index.stride[3];
    auto* to = static_cast<std::int64_t*>(call.top_k_index.data) +
               offset_of(call.top_k_index.stride, state.task.batch, query_row.head, query_row.index);
    for (std::int64_t i = 0; i < call.top_k; ++i)
      to[i * stride] = list.key[i * ld] < 0 ? -1 : list.key[i * ld] + state.task.key_begin;
  }
  const Output& weights = call.top_k_weight;
  if (!weights.data) return;
  const std::int64_t at = offset_of(weights.stride, state.task.batch, query_row.head, query_row.index);
  for (std::int64_t i = 0; i < call.top_k; ++i)
    write_float(weights, at + i * weights.stride[3], list.weight[i * ld] * inverse);
}

/// Notes what became of a row. Tasks of the weights pass share rows, and note the same of them.
inline void note_status(const TaskState& state, const QueryRow& query_row, cpu::RowStatus status) {
  const Arguments& call = state.call;
  if (call.row_status == nullptr) return;
  const std::int64_t heads = call.heads;
  auto* to = reinterpret_cast<std::uint8_t*>(call.row_status) +
             (state.task.batch * heads + query_row.head) * call.query_length + query_row.index;
  __atomic_store_n(to, static_cast<std::uint8_t>(status), __ATOMIC_RELAXED);
}

/// A row that f32 cannot hold weighs nothing in what is summed over rows.
inline void finish_left_out(const TaskState& state, std::int64_t row) {
  const QueryRow& query_row = state.w.query_row[row];
  write_at(state.call.row_shift, state.task.batch, query_row, 0.0f);
  write_at(state.call.row_inverse, state.task.batch, query_row, 0.0f);
  write_at(state.call.row_sink, state.task.batch, query_row, 0.0f);
  state.w.inverse[row] = 0;
  note_status(state, query_row, cpu::RowStatus::out_of_range);
}

/// Results of one row. Returns false where its scores were so low that f32 could not tell them apart.
inline bool finish_row(const TaskState& state, std::int64_t row) {
  const Arguments& call = state.call;
  const Workspace& w = state.w;
  const QueryRow& query_row = w.query_row[row];
  const std::int64_t batch = state.task.batch;
  const float sum = reduce_add(load(w.rows.sum + row * kLanes));
  const float shift = w.rows.shift[row];
  if (sum > 0 && shift < -kLargestScore / 2) return false;

  // What 2^s is counted from: the row's scores are relative to `offset`, and weights to 2^shift.
  const double offset = alibi_offset(call, batch, query_row.head, query_row.position,
                                     state.task.key_end - state.task.key_begin);
  const double origin = offset + static_cast<double>(shift);
  // A sink is one more term of the sum: 2^(sink - origin).
  double total = static_cast<double>(sum);
  double sink = -__builtin_inf();
  double sink_part = 0;
  if (call.sinks.data) {
    sink = 1.44269504088896340736 * static_cast<double>(read_float(call.sinks.data, call.sinks.type,
                                                                   query_row.head * call.sinks.stride[1]));
    sink_part = kGainExact * __builtin_exp2(sink - origin);
    total += sink_part;
  }
  const float inverse = sum > 0 ? 1.0f / static_cast<float>(total) : 0.0f;
  if (call.output.data) {
    // With pairs the output was summed with rounded weights, and is divided by their sum.
    const double extra = total - static_cast<double>(sum);
    const float divisor =
        state.bf16_dot
            ? static_cast<float>(static_cast<double>(reduce_add(load(w.rows.rounded + row * kLanes))) + extra)
            : static_cast<float>(total);
    const Vf wrong =
        write_output(call.output, offset_of(call.output.stride, batch, query_row.head, query_row.index),
                     w.output + row * w.value_columns, call.value_dim, sum > 0 ? 1.0f / divisor : 0.0f);
    if (!(reduce_add(wrong) == 0.0f)) note_status(state, query_row, cpu::RowStatus::output_only);
  }
  write_at(call.row_shift, batch, query_row, shift);
  write_at(call.row_inverse, batch, query_row, inverse);
  w.inverse[row] = inverse;

  // Without a key only the sink is left; beside one that exceeds all else by far, too.
  const bool is_sink = !(sum > 0) || !(total < 0x1p100);
  if (call.row_sink.data) {
    const double share = !call.sinks.data ? 0.0 : is_sink ? 1.0 : sink_part / total;
    write_at(call.row_sink, batch, query_row, static_cast<float>(share));
  }
  if (call.lse.data || call.entropy.data) {
    const double above = is_sink ? sink - origin : __builtin_log2(total) - kLog2Gain;  // lse - origin
    write_at(call.lse, batch, query_row, static_cast<float>((is_sink ? sink : origin + above) * kLn2));
    if (call.entropy.data) {
      // -sum p log2 p with log2 p_j = s_j - lse: (lse - origin) sum p - sum p (s - origin)
      const double share = sum > 0 ? static_cast<double>(sum) / total : 0.0;
      const double moment = static_cast<double>(reduce_add(load(w.rows.entropy + row * kLanes)));
      const double bits = sum > 0 ? above * share - moment / total : 0.0;
      write_at(call.entropy, batch, query_row, static_cast<float>(bits > 0 ? bits * kLn2 : 0.0));
    }
  }
  if (call.max_score.data) {
    const float max = reduce_max(load(w.rows.max + row * kLanes));
    write_at(call.max_score, batch, query_row,
             max <= kForbidden ? -__builtin_inff()
                               : static_cast<float>((static_cast<double>(max) + offset) * kLn2));
  }
  if (call.distance.data)
    write_at(call.distance, batch, query_row, reduce_add(load(w.distance + row * kLanes)) * inverse);
  if (call.top_k > 0) write_top(state, row, inverse);
  return true;
}

inline void finish_rows(const TaskState& state) {
  for (std::int64_t row = 0; row < state.rows; ++row)
    if (state.w.left_out[row] != 0 || !finish_row(state, row)) finish_left_out(state, row);
  if (state.call.map_columns > 0) add_to_map(state);
}

}  // namespace heed::detail::HEED_ISA
