// The end of a task: sums become results, in the caller's memory, of the caller's type and strides.
#pragma once

#include "attention/cpu/observers.hpp"
#include "attention/cpu/transform.hpp"
#include "attention/cpu/work.hpp"

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

inline void write_at(const Output& out, std::int64_t batch, const Site& site, float x) {
  if (out.data) write_float(out, offset_of(out.stride, batch, site.head, site.index), x);
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
inline bool is_forbidden(const Run& run, const Site& site, std::int64_t key) {
  const Call& call = run.call;
  const std::int64_t absolute_key = run.task.key_begin + key;
  const auto at = [&](const Input& x) {
    return offset_of(x.stride, run.task.batch, site.head, site.index) + absolute_key * x.stride[3];
  };
  if (call.mask.data && static_cast<const std::uint8_t*>(call.mask.data)[at(call.mask)] == 0) return true;
  return call.bias.data && read_float(call.bias.data, call.bias.type, at(call.bias)) == -__builtin_inff();
}

/// Copies a list, whose entries are kLanes apart, to run.w.list, and goes on with allowed keys of weight 0
/// where fewer than K have a larger one (their weights ran below what f32 holds): by rising key, as equal
/// weights are ordered. The last keys are -1 where there are not so many.
inline void complete_top(const Run& run, const Site& site, const Columns& from) {
  const Columns& list = run.w.list;
  const std::int64_t capacity = run.call.top_k;
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
  for (std::int64_t key = site.low; key < site.high && filled < capacity; ++key) {
    bool listed = false;
    for (std::int64_t i = 0; i < heavy && !listed; ++i) listed = list.key[i] == key;
    if (!listed && !is_forbidden(run, site, key)) list.key[filled++] = static_cast<std::int32_t>(key);
  }
}

/// Writes the list of a row: where it lies, or completed in run.w.list.
inline void write_top(const Run& run, std::int64_t row, float inverse) {
  const Call& call = run.call;
  const Site& site = run.w.site[row];
  Columns list = lists_of(run.w, row);
  list = {list.weight + row % kLanes, list.key + row % kLanes};
  std::int64_t ld = kLanes;
  if (!(list.weight[(call.top_k - 1) * ld] > 0)) {
    count_path(call.paths, Path::top_k_completed);
    complete_top(run, site, list);
    list = run.w.list;
    ld = 1;
  }
  if (call.top_k_index.data) {
    const std::int64_t stride = call.top_k_index.stride[3];
    auto* to = static_cast<std::int64_t*>(call.top_k_index.data) +
               offset_of(call.top_k_index.stride, run.task.batch, site.head, site.index);
    for (std::int64_t i = 0; i < call.top_k; ++i)
      to[i * stride] = list.key[i * ld] < 0 ? -1 : list.key[i * ld] + run.task.key_begin;
  }
  const Output& weights = call.top_k_weight;
  if (!weights.data) return;
  const std::int64_t at = offset_of(weights.stride, run.task.batch, site.head, site.index);
  for (std::int64_t i = 0; i < call.top_k; ++i)
    write_float(weights, at + i * weights.stride[3], list.weight[i * ld] * inverse);
}

/// Notes what became of a row. Tasks of the second pass share rows, and note the same of them.
inline void note_status(const Run& run, const Site& site, cpu::RowStatus status) {
  const Call& call = run.call;
  if (call.row_status == nullptr) return;
  const std::int64_t heads = call.heads;
  auto* to = reinterpret_cast<std::uint8_t*>(call.row_status) +
             (run.task.batch * heads + site.head) * call.query_length + site.index;
  __atomic_store_n(to, static_cast<std::uint8_t>(status), __ATOMIC_RELAXED);
}

/// A row that f32 cannot hold weighs nothing in what is summed over rows.
inline void finish_left_out(const Run& run, std::int64_t row) {
  const Site& site = run.w.site[row];
  write_at(run.call.row_shift, run.task.batch, site, 0.0f);
  write_at(run.call.row_inverse, run.task.batch, site, 0.0f);
  write_at(run.call.row_sink, run.task.batch, site, 0.0f);
  run.w.inverse[row] = 0;
  note_status(run, site, cpu::RowStatus::out_of_range);
}

/// Results of one row. Returns false where its scores were so low that f32 could not tell them apart.
inline bool finish_row(const Run& run, std::int64_t row) {
  const Call& call = run.call;
  const Work& w = run.w;
  const Site& site = w.site[row];
  const std::int64_t batch = run.task.batch;
  const float sum = reduce_add(load(w.rows.sum + row * kLanes));
  const float shift = w.rows.shift[row];
  if (sum > 0 && shift < -kLargestScore / 2) return false;

  // What 2^s is counted from: the row's scores are relative to `offset`, and weights to 2^shift.
  const double offset =
      alibi_offset(call, batch, site.head, site.position, run.task.key_end - run.task.key_begin);
  const double origin = offset + static_cast<double>(shift);
  // A sink is one more term of the sum: 2^(sink - origin).
  double total = static_cast<double>(sum);
  double sink = -__builtin_inf();
  double sink_part = 0;
  if (call.sinks.data) {
    sink = 1.44269504088896340736 * static_cast<double>(read_float(call.sinks.data, call.sinks.type,
                                                                   site.head * call.sinks.stride[1]));
    sink_part = kGainExact * __builtin_exp2(sink - origin);
    total += sink_part;
  }
  const float inverse = sum > 0 ? 1.0f / static_cast<float>(total) : 0.0f;
  if (call.output.data) {
    // With pairs the output was summed with rounded weights, and is divided by their sum.
    const double extra = total - static_cast<double>(sum);
    const float divisor =
        run.pairs
            ? static_cast<float>(static_cast<double>(reduce_add(load(w.rows.rounded + row * kLanes))) + extra)
            : static_cast<float>(total);
    const Vf wrong =
        write_output(call.output, offset_of(call.output.stride, batch, site.head, site.index),
                     w.output + row * w.value_columns, call.value_dim, sum > 0 ? 1.0f / divisor : 0.0f);
    if (!(reduce_add(wrong) == 0.0f)) note_status(run, site, cpu::RowStatus::output_only);
  }
  write_at(call.row_shift, batch, site, shift);
  write_at(call.row_inverse, batch, site, inverse);
  w.inverse[row] = inverse;

  // Without a key only the sink is left; beside one that exceeds all else by far, too.
  const bool is_sink = !(sum > 0) || !(total < 0x1p100);
  if (call.row_sink.data) {
    const double share = !call.sinks.data ? 0.0 : is_sink ? 1.0 : sink_part / total;
    write_at(call.row_sink, batch, site, static_cast<float>(share));
  }
  if (call.lse.data || call.entropy.data) {
    const double above = is_sink ? sink - origin : __builtin_log2(total) - kLog2Gain;  // lse - origin
    write_at(call.lse, batch, site, static_cast<float>((is_sink ? sink : origin + above) * kLn2));
    if (call.entropy.data) {
      // -sum p log2 p with log2 p_j = s_j - lse: (lse - origin) sum p - sum p (s - origin)
      const double share = sum > 0 ? static_cast<double>(sum) / total : 0.0;
      const double moment = static_cast<double>(reduce_add(load(w.rows.entropy + row * kLanes)));
      const double bits = sum > 0 ? above * share - moment / total : 0.0;
      write_at(call.entropy, batch, site, static_cast<float>(bits > 0 ? bits * kLn2 : 0.0));
    }
  }
  if (call.max_score.data) {
    const float max = reduce_max(load(w.rows.max + row * kLanes));
    write_at(call.max_score, batch, site,
             max <= kForbidden ? -__builtin_inff()
                               : static_cast<float>((static_cast<double>(max) + offset) * kLn2));
  }
  if (call.distance.data)
    write_at(call.distance, batch, site, reduce_add(load(w.distance + row * kLanes)) * inverse);
  if (call.top_k > 0) write_top(run, row, inverse);
  return true;
}

inline void finish_rows(const Run& run) {
  for (std::int64_t row = 0; row < run.rows; ++row)
    if (run.w.left_out[row] != 0 || !finish_row(run, row)) finish_left_out(run, row);
  if (run.call.map_columns > 0) add_to_map(run);
}

}  // namespace heed::detail::HEED_ISA
