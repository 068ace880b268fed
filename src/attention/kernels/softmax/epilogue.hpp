// The end of a task: converts states to results, in the type and strides of the caller's memory.
#pragma once

#include "attention/kernels/softmax/row_statistics.hpp"
#include "attention/kernels/softmax/score_modifiers.hpp"
#include "attention/kernels/softmax/workspace.hpp"

namespace heed::detail::HEED_ISA {

inline void write_float(const Output& out, std::int64_t at, float x) {
  switch (out.dtype) {
    case DType::f64:
      static_cast<double*>(out.data)[at] = static_cast<double>(x);
      break;
    case DType::f32:
      static_cast<float*>(out.data)[at] = x;
      break;
    case DType::bf16:
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
  if (out.stride[3] != 1 || (out.dtype != DType::bf16 && out.dtype != DType::f16)) {
    for (std::int64_t c = 0; c < count; ++c) write_float(out, at + c * out.stride[3], row[c]);
    return;
  }
  auto* to = static_cast<std::uint16_t*>(out.data) + at;
  std::int64_t c = 0;
  if (out.dtype == DType::bf16) {  // compilers vectorise this loop
    for (; c < count; ++c) to[c] = to_bf16(row[c]);
  } else {
    for (; c + kLanes <= count; c += kLanes) store_f16(to + c, load(row + c));
  }
  for (; c < count; ++c) to[c] = to_half(row[c]);
}

/// to [count] = row * factor in bf16; `count` is a multiple of two vectors. Returns the same as write_output.
inline Vf write_bf16_output(std::uint16_t* to, const float* row, std::int64_t count, Vf factor) {
  Vf wrong = zero();
  for (std::int64_t c = 0; c < count; c += 2 * kLanes) {
    const Vf a = mul(load(row + c), factor);
    const Vf b = mul(load(row + c + kLanes), factor);
    store_bf16(to + c, a, b);
    wrong = mul_add(a, zero(), mul_add(b, zero(), wrong));
  }
  return wrong;
}

/// out row = `row` [whole vectors] * factor. If `out` is not contiguous f32, `row` is overwritten with the
/// product. Returns zeros, or a NaN if a number is not finite: then values, or sums of them, exceed what f32
/// holds.
inline Vf write_output(const Output& out, std::int64_t at, float* row, std::int64_t count, float factor) {
  const Vf f = splat(factor);
  const bool direct = out.dtype == DType::f32 && out.stride[3] == 1;
  if constexpr (kHasMatrixTiles) {  // these round to bf16 like their operands
    if (out.dtype == DType::bf16 && out.stride[3] == 1 && count % (2 * kLanes) == 0)
      return write_bf16_output(static_cast<std::uint16_t*>(out.data) + at, row, count, f);
  }
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

/// The product of a query and one key, with the scale, summed in f64.
inline float product_of(const TaskContext& state, const QueryRow& query_row, std::int64_t key) {
  const Operand& query = state.call.query;
  const HeadRows keys = even_rows(state, true, key, 1).rows;
  const std::int64_t at = offset_of(query.stride, state.task.batch, query_row.head, query_row.index);
  const std::int64_t from = keys.at(key);
  double sum = 0;
  for (std::int64_t d = 0; d < state.w.depth; ++d)
    sum += static_cast<double>(read_float(query.data, query.dtype, at + d * query.stride[3])) *
           static_cast<double>(
               read_float(keys.tensor.data, keys.tensor.dtype, from + d * keys.element_stride()));
  return narrowed(sum * static_cast<double>(state.call.log2_scale));
}

/// Whether the ScoreMod turns a key's score into -inf.
inline bool is_forbidden_by_score(const TaskContext& state, const QueryRow& query_row, std::int64_t key) {
  const MatrixTiles::Lent lent(true);
  alignas(64) float scores[kPanel] = {product_of(state, query_row, key)};
  apply_score_mod(state.call, state.task.batch, query_row, state.task.key_begin + key, 1, scores, nullptr);
  return scores[0] == -__builtin_inff();
}

/// Whether a mask, a score or a bias forbids the key.
inline bool is_forbidden(const TaskContext& state, const QueryRow& query_row, std::int64_t key) {
  const Arguments& call = state.call;
  const std::int64_t absolute_key = state.task.key_begin + key;
  const auto at = [&](const Operand& x) {
    return offset_of(x.stride, state.task.batch, query_row.head, query_row.index) +
           absolute_key * x.stride[3];
  };
  if (call.mask.data && static_cast<const std::uint8_t*>(call.mask.data)[at(call.mask)] == 0) return true;
  for (std::int64_t m = 0; m < call.sparse_mask_count; ++m) {
    const MaskSource& mask = call.sparse_masks[m];
    std::uint8_t visible = 1;
    mask.restrict_row(state.task.batch, query_row.head, query_row.index, absolute_key, absolute_key + 1,
                      &visible);
    if (visible == 0) return true;
  }
  if (call.score_mod && is_forbidden_by_score(state, query_row, key)) return true;
  return call.bias.data && read_float(call.bias.data, call.bias.dtype, at(call.bias)) == -__builtin_inff();
}

/// Copies a list, whose entries are kLanes apart, to state.w.list. If fewer than K keys have a positive
/// weight, it appends allowed keys of weight 0, whose weights underflowed in f32. They come in order of the
/// key, as equal weights do. The remaining entries have key -1.
inline void complete_top(const TaskContext& state, const QueryRow& query_row, const CandidateColumns& from) {
  const CandidateColumns& list = state.w.list;
  const std::int64_t capacity = state.call.top_k;
  std::int64_t heavy = 0;
  for (; heavy < capacity && from.weight[heavy * kLanes] > kAnyWeight; ++heavy) {
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

/// Whether a row's list has K valid entries, judged as one more merge would.
inline bool is_full(const SoftmaxState& s, std::int64_t row) {
  return lists_of(s, row).weight[row % kLanes + (s.top_k - 1) * kLanes] > kAnyWeight;
}

/// Writes a row's list, directly or after completing it in state.w.list.
inline void write_top(const TaskContext& state, const SoftmaxState& s, std::int64_t row, float inverse) {
  const Arguments& call = state.call;
  const QueryRow& query_row = state.w.query_row[row];
  CandidateColumns list = lists_of(s, row);
  list = {list.weight + row % kLanes, list.key + row % kLanes};
  std::int64_t ld = kLanes;
  if (!is_full(s, row)) {
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

/// Stores the status of a row. Tasks of the weights pass share rows, and store the same status.
inline void note_status(const TaskContext& state, const QueryRow& query_row, cpu::RowStatus status) {
  const Arguments& call = state.call;
  if (call.row_status == nullptr) return;
  const std::int64_t heads = call.heads;
  auto* to = reinterpret_cast<std::uint8_t*>(call.row_status) +
             (state.task.batch * heads + query_row.head) * call.query_length + query_row.index;
  __atomic_store_n(to, static_cast<std::uint8_t>(status), __ATOMIC_RELAXED);
}

/// Zeroes a row that f32 cannot hold in everything that is summed over rows.
inline void finish_left_out(const TaskContext& state, std::int64_t row) {
  const QueryRow& query_row = state.w.query_row[row];
  write_at(state.call.row_shift, state.task.batch, query_row, 0.0f);
  write_at(state.call.row_inverse, state.task.batch, query_row, 0.0f);
  write_at(state.call.row_sink, state.task.batch, query_row, 0.0f);
  state.w.inverse[row] = 0;
  note_status(state, query_row, cpu::RowStatus::out_of_range);
}

/// For a bias of at most kSwallowing and a score of at most kMaxProduct, the sum is the bias, in f64 too.
inline constexpr double kSwallowing = -0x1p115;

/// Returns the bias of all keys that a row sees, if they share one and it swallows their scores; else 0. Such
/// scores are equal, like the scores that the kernel raised to -kMaxScore. Masks are often made of
/// finfo.min: a row that may see nothing then has it for every key.
inline double swallowing_bias(const TaskContext& state, const QueryRow& query_row) {
  const Arguments& call = state.call;
  if (!call.bias.data || call.score_mod || call.alibi_slopes.data || call.decay.data || call.sinks.data)
    return 0;
  const std::int64_t at = offset_of(call.bias.stride, state.task.batch, query_row.head, query_row.index);
  double common = 0;
  for (std::int64_t key = query_row.key_begin; key < query_row.key_end; ++key) {
    const std::int64_t element = at + (state.task.key_begin + key) * call.bias.stride[3];
    const double bias = call.bias.dtype == DType::f64
                            ? static_cast<const double*>(call.bias.data)[element]
                            : static_cast<double>(read_float(call.bias.data, call.bias.dtype, element));
    if (bias == common || is_forbidden(state, query_row, key)) continue;
    if (common != 0 || !(bias <= kSwallowing)) return 0;
    common = bias;
  }
  return common;
}

/// The totals of a row's state, with the sink as one more term 2^sink of the sum, in units of log 2. The
/// state's scores are relative to `offset`, and its weights to 2^m; `origin` is the sum of both.
struct RowTotals {
  double offset, origin;
  double weights, total;   // sums of 2^(score - origin) times kGain, without the sink and with it
  double sink, sink_part;  // -inf and 0: none
  float inverse;           // turns an unnormalised weight into a weight; 0 without a key

  /// Whether only the sink counts: without a key, or if the sink exceeds all other terms by far.
  [[nodiscard]] bool is_sink() const { return !(weights > 0) || !(total < 0x1p100); }
  /// lse - origin
  [[nodiscard]] double above() const { return is_sink() ? sink - origin : __builtin_log2(total) - kLog2Gain; }
  [[nodiscard]] double lse() const { return is_sink() ? sink : origin + above(); }
  [[nodiscard]] double sink_weight() const {
    if (sink == -__builtin_inf()) return 0;
    return is_sink() ? 1.0 : sink_part / total;
  }
};

inline RowTotals totals_of(const TaskContext& state, const SoftmaxState& s, std::int64_t row) {
  const Arguments& call = state.call;
  const QueryRow& query_row = state.w.query_row[row];
  RowTotals totals;
  totals.offset =
      alibi_offset(call, state.task.batch, query_row.head, query_row.position, keys_of(state.task));
  totals.origin = totals.offset + static_cast<double>(s.shift[row]);
  totals.weights = totals.total = static_cast<double>(reduce_add(load(s.sum + row * kLanes)));
  totals.sink = -__builtin_inf();
  totals.sink_part = 0;
  if (call.sinks.data) {
    totals.sink =
        1.44269504088896340736 * static_cast<double>(read_float(call.sinks.data, call.sinks.dtype,
                                                                query_row.head * call.sinks.stride[1]));
    totals.sink_part = kGainExact * __builtin_exp2(totals.sink - totals.origin);
    totals.total += totals.sink_part;
  }
  totals.inverse = totals.weights > 0 ? 1.0f / static_cast<float>(totals.total) : 0.0f;
  return totals;
}

inline void finish_output(const TaskContext& state, const SoftmaxState& s, std::int64_t row,
                          const RowTotals& totals) {
  const Arguments& call = state.call;
  const QueryRow& query_row = state.w.query_row[row];
  // An output summed with rounded weights is divided by the sum of the rounded weights.
  const auto lanes = [&](const float* sums) {
    return static_cast<double>(reduce_add(load(sums + row * kLanes)));
  };
  const double divisor = s.rounded != nullptr ? lanes(s.rounded) + totals.sink_part : totals.total;
  const Vf wrong = write_output(
      call.output, offset_of(call.output.stride, state.task.batch, query_row.head, query_row.index),
      s.output + row * s.value_columns, call.value_dim,
      totals.weights > 0 ? 1.0f / static_cast<float>(divisor) : 0.0f);
  if (bits_of(greater_equal(wrong, zero())) != kAllLanes)
    note_status(state, query_row, cpu::RowStatus::output_only);
}

/// -sum p log p, from log2 p_j = s_j - lse: (lse - origin) sum p - sum p (s - origin), in bits.
inline double entropy_of(const SoftmaxState& s, std::int64_t row, const RowTotals& totals) {
  if (!(totals.weights > 0)) return 0;
  const double share = totals.weights / totals.total;
  const double moment = static_cast<double>(reduce_add(load(s.moment + row * kLanes)));
  const double bits = totals.above() * share - moment / totals.total;
  return bits > 0 ? bits * kLn2 : 0.0;
}

/// Whether a row's list needs keys that only their scores can find, while the keys are no longer there.
inline bool lacks_keys(const TaskContext& state, const SoftmaxState& s, std::int64_t row) {
  if (state.call.top_k == 0 || !state.call.score_mod || state.kv.keys.tensor.data != nullptr) return false;
  return !is_full(s, row);
}

/// Writes the results of one row. Returns false if its scores were too low for f32 to tell them apart, or if
/// it needs keys that are no longer there.
inline bool finish_row(const TaskContext& state, const SoftmaxState& s, std::int64_t row) {
  const Arguments& call = state.call;
  const QueryRow& query_row = state.w.query_row[row];
  const std::int64_t batch = state.task.batch;
  const auto write = [&](const Output& out, double x) {
    write_at(out, batch, query_row, static_cast<float>(x));
  };
  const RowTotals totals = totals_of(state, s, row);
  const bool is_low = totals.weights > 0 && s.shift[row] < -kMaxScore / 2;
  const double swallowing = is_low ? swallowing_bias(state, query_row) : 0;
  if (is_low && swallowing == 0) return false;
  if (lacks_keys(state, s, row)) return false;

  if (call.output.data) finish_output(state, s, row, totals);
  write_at(call.row_shift, batch, query_row, s.shift[row]);
  write_at(call.row_inverse, batch, query_row, totals.inverse);
  state.w.inverse[row] = totals.inverse;
  if (call.row_sink.data) write(call.row_sink, totals.sink_weight());
  if (call.lse.data) write(call.lse, is_low ? swallowing : totals.lse() * kLn2);
  if (call.entropy.data) write(call.entropy, entropy_of(s, row, totals));
  if (call.max_score.data) {
    const float max = reduce_max(load(s.max + row * kLanes));
    write(call.max_score, max <= kForbidden ? -__builtin_inf()
                          : is_low          ? swallowing
                                            : (static_cast<double>(max) + totals.offset) * kLn2);
  }
  if (call.distance.data)
    write_at(call.distance, batch, query_row, reduce_add(load(s.distance + row * kLanes)) * totals.inverse);
  if (call.top_k > 0) write_top(state, s, row, totals.inverse);
  return true;
}

// Matrix tiles prefetch rows of the output that far ahead of the one they write. Others gain nothing from it.
inline constexpr std::int64_t kOutputsAhead = 8;

/// Prefetches a row of the output for writing, if it is contiguous.
inline void fetch_output(const TaskState& state, std::int64_t row) {
  const Output& output = state.call.output;
  if (!output.data || output.stride[3] != 1) return;
  const QueryRow& query_row = state.w.query_row[row];
  const std::int64_t bytes = cpu::bits_of(output.dtype) / 8;
  char* to = static_cast<char*>(output.data) +
             bytes * offset_of(output.stride, state.task.batch, query_row.head, query_row.index);
  for (std::int64_t byte = 0; byte < bytes * state.call.value_dim; byte += 64)
    __builtin_prefetch(to + byte, 1);
}

/// Whether a call asks for nothing but its output, and has no sinks.
inline bool wants_output_alone(const Arguments& call) {
  return call.output.data && !call.row_shift.data && !call.row_inverse.data && !call.row_sink.data &&
         !call.lse.data && !call.distance.data && !call.sinks.data && call.map_size.columns == 0 &&
         !keeps_statistics(call);
}

/// finish_row() for such a call. It looks at no other result, which shows in short calls (docs/kernel.md).
HEED_INLINE bool finish_output_alone(const TaskContext& state, const SoftmaxState& s, std::int64_t row) {
  if (s.shift[row] < -kMaxScore / 2) return finish_row(state, s, row);
  RowTotals totals = {};
  totals.weights = totals.total = static_cast<double>(reduce_add(load(s.sum + row * kLanes)));
  state.w.inverse[row] = totals.weights > 0 ? 1.0f / static_cast<float>(totals.total) : 0.0f;
  finish_output(state, s, row, totals);
  return true;
}

/// Writes the results of all rows, from their states over all keys.
inline void finish_rows(const TaskState& state, const SoftmaxState& s) {
  if (has_masks(state.call)) {
    MaskedRows rows = masked_rows(state);
    rows.left_out = s.left_out;
    restore_rows(rows);
  }
  const bool alone = wants_output_alone(state.call);
  for (std::int64_t row = 0; row < state.rows; ++row) {
    if (kHasMatrixTiles && row + kOutputsAhead < state.rows) fetch_output(state, row + kOutputsAhead);
    const bool finished =
        s.left_out[row] == 0 && (alone ? finish_output_alone(state, s, row) : finish_row(state, s, row));
    if (!finished) finish_left_out(state, row);
  }
  if (state.call.map_size.columns > 0) add_to_map(state);
}

}  // namespace heed::detail::HEED_ISA
