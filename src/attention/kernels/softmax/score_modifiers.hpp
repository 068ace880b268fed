// Modification of scores between the first product and the softmax: softcap, ScoreMod, bias, ALiBi, decay,
// and masks (masked_rows.hpp). Scores, softcap, bias and slopes are in units of log 2 (times log2(e)).
#pragma once

#include "attention/kernels/shared/exp2.hpp"
#include "attention/kernels/shared/pack.hpp"
#include "attention/kernels/shared/visible_keys.hpp"
#include "attention/kernels/softmax/softmax_state.hpp"
#include "attention/problem/score_formulas.hpp"

namespace heed::detail::HEED_ISA {

using cpu::Arguments;

inline constexpr float kLog2e = 1.44269504088896340736f;

/// tanh. For |x| < 5/8 an odd polynomial (least squares in x^2, 0.76 ulp); beyond that 1 - 2 / (e^2|x| + 1),
/// 2 ulp.
HEED_INLINE Vf tanh_of(Vf x) {
  const Vf a = absolute(x);
  const Vf square = mul(x, x);
  Vf small = splat(0x1.7561f0p-8f);
  small = mul_add(small, square, splat(-0x1.520b1cp-6f));
  small = mul_add(small, square, splat(0x1.b83852p-5f));
  small = mul_add(small, square, splat(-0x1.11070ap-3f));
  small = mul_add(small, square, splat(0x1.555532p-2f));
  small = sub(x, mul(mul(small, square), x));
  // 2 |x| log2(e), limited to 60; tanh is 1 in f32 long before that
  const Vf power = mul(a, splat(2 * kLog2e));
  const Vf limited = select(greater(power, splat(60.0f)), splat(60.0f), power);
  const Vf e = mul(exp2_bounded(limited, splat(kRound)), splat(static_cast<float>(1 / kGainExact)));
  const Vf magnitude = sub(splat(1.0f), div(splat(2.0f), add(e, splat(1.0f))));
  const Vf large = select(greater(zero(), x), sub(zero(), magnitude), magnitude);
  return select(greater(splat(0.625f), a), small, large);
}

/// The number type of score_formulas.hpp on vectors.
struct VectorMath {
  using Number = Vf;
  HEED_INLINE static Vf one() { return splat(1.0f); }
  HEED_INLINE static Vf sub(Vf a, Vf b) { return HEED_ISA::sub(a, b); }
  HEED_INLINE static Vf mul(Vf a, Vf b) { return HEED_ISA::mul(a, b); }
  HEED_INLINE static Vf div(Vf a, Vf b) { return HEED_ISA::div(a, b); }
  HEED_INLINE static Vf mul_add(Vf a, Vf b, Vf c) { return HEED_ISA::mul_add(a, b, c); }
  HEED_INLINE static Vf absolute(Vf a) { return HEED_ISA::absolute(a); }
  HEED_INLINE static Vf tanh(Vf a) { return tanh_of(a); }
};

/// The start of a row's bias, and its slope, for keys from `key` on (of the tensor).
struct RowModifiers {
  std::int64_t bias_at;
  float slope;
};

inline RowModifiers row_modifiers_of(const Arguments& call, std::int64_t batch, const QueryRow& query_row,
                                     std::int64_t key) {
  RowModifiers modifiers = {0, 0.0f};
  if (call.bias.data)
    modifiers.bias_at =
        offset_of(call.bias.stride, batch, query_row.head, query_row.index) + key * call.bias.stride[3];
  if (call.alibi_slopes.data)
    modifiers.slope = kLog2e * read_float(call.alibi_slopes.data, call.alibi_slopes.dtype,
                                          batch * call.alibi_slopes.stride[0] +
                                              query_row.head * call.alibi_slopes.stride[1]);
  return modifiers;
}

/// -slope |p - nearest_position(p)|, in units of log 2. It is 0 without ALiBi, and for rows among their keys.
inline double alibi_offset(const Arguments& call, std::int64_t batch, std::int64_t head,
                           std::int64_t position, const KeyPositions& keys) {
  if (!call.alibi_slopes.data) return 0;
  const std::int64_t gap = position - nearest_position(position, keys);
  if (gap == 0) return 0;
  const float slope = read_float(call.alibi_slopes.data, call.alibi_slopes.dtype,
                                 batch * call.alibi_slopes.stride[0] + head * call.alibi_slopes.stride[1]);
  return -static_cast<double>(slope) * 1.44269504088896340736 * __builtin_fabs(static_cast<double>(gap));
}

/// Copies up to kPanel biases of any type and stride to a buffer.
inline void read_bias(const Arguments& call, std::int64_t at, std::int64_t count, float* to) {
  read_row(call.bias, at, call.bias.stride[3], count, to);
  for (std::int64_t k = count; k < kPanel; ++k) to[k] = 0;
}

/// c_j of a panel's keys: in f64 if c is f64, else in f32. Numbers of f64 are subtracted before they are
/// rounded, because c may be large where the difference is small.
struct PanelDecay {
  alignas(64) double wide[kPanel];
  alignas(64) float narrow[kPanel];
};
/// The same of a task's rows.
struct RowDecay {
  double* wide;
  float* narrow;
};

/// c_i of a row.
inline double decay_of_row(const Arguments& call, const Task& task, const QueryRow& query_row) {
  const Operand& c = call.decay;
  const std::int64_t at = task.batch * c.stride[0] + query_row.head * c.stride[1] +
                          decay_index(call, task, query_row.position) * c.stride[2];
  return c.dtype == DType::f64 ? static_cast<const double*>(c.data)[at]
                               : static_cast<double>(read_float(c.data, c.dtype, at));
}

/// Reads c_j of up to kPanel keys from `key` on, for one head. The other numbers become 0.
inline void read_decay(const Arguments& call, const Task& task, std::int64_t head, std::int64_t key,
                       PanelDecay& to) {
  const Operand& c = call.decay;
  const KeyPositions keys = keys_of(task);
  const std::int64_t count = smaller(kPanel, keys.keys - key), step = c.stride[2];
  const std::int64_t first = task.batch * c.stride[0] + head * c.stride[1] + task.key_begin * step;
  for (std::int64_t k = count; k < kPanel; ++k) to.wide[k] = to.narrow[k] = 0;
  if (c.dtype == DType::f64)
    for (std::int64_t k = 0; k < count; ++k)
      to.wide[k] = static_cast<const double*>(c.data)[first + keys.of(key + k) * step];
  else if (keys.positions == nullptr)
    read_row(c, first + key * step, step, count, to.narrow);
  else
    for (std::int64_t k = 0; k < count; ++k)
      to.narrow[k] = read_float(c.data, c.dtype, first + keys.of(key + k) * step);
}

/// s + (c_i - c_j), for kLanes keys.
HEED_INLINE Vf decayed(Vf score, double of_row, const double* of_keys) {
  return biased<VectorMath>(score, narrowed_difference(of_row, of_keys), splat(kLog2e));
}
HEED_INLINE Vf decayed(Vf score, float of_row, const float* of_keys) {
  return biased<VectorMath>(score, sub(splat(of_row), load(of_keys)), splat(kLog2e));
}

/// Applies softcap and ScoreMod to the first `count` scores of a row. `slope`, if not null, receives the
/// derivative of both.
inline void apply_score_mod(const Arguments& call, std::int64_t batch, const QueryRow& query_row,
                            std::int64_t key, std::int64_t count, float* scores, float* slope) {
  alignas(64) float mod_slope[kPanel] = {};
  for (std::int64_t v = 0; v < kPanel; v += kLanes) {
    Vf s = load(scores + v);
    if (call.log2_softcap > 0) {
      const Softcapped<VectorMath> capped = softcapped<VectorMath>(s, splat(call.log2_softcap));
      s = capped.score;
      if (slope != nullptr) store(slope + v, capped.slope);
    } else if (slope != nullptr) {
      store(slope + v, splat(1.0f));
    }
    store(scores + v, mul(s, splat(1 / kLog2e)));
  }
  call.score_mod.apply(batch, query_row.head, query_row.index, key, key + count, scores,
                       slope != nullptr ? mod_slope : nullptr);
  for (std::int64_t v = 0; v < kPanel; v += kLanes) {
    store(scores + v, mul(load(scores + v), splat(kLog2e)));
    if (slope != nullptr) store(slope + v, mul(load(slope + v), load(mod_slope + v)));
  }
}

/// Larger products may have overflowed while they were summed; such a sum stays infinite, whatever the score
/// is. Also, only larger products would count beside a bias below kSwallowing (epilogue.hpp).
inline constexpr float kMaxProduct = 0x1p60f;

/// Modifies the scores of one row against keys [key, key + kPanel) of its segment, in place in `scores`
/// [kPanel]. `slope` [kPanel], if not null, receives the derivative of softcap and ScoreMod. Returns false if
/// an allowed score is NaN or exceeds what f32 sums hold, or if its product exceeds kMaxProduct.
inline bool modify_scores(const Arguments& call, const Task& task, const QueryRow& query_row,
                          std::int64_t key, float* scores, float* slope = nullptr) {
  const std::int64_t batch = task.batch;
  const std::int64_t segment_key = task.key_begin;
  const KeyPositions keys = keys_of(task);
  const RowModifiers modifiers = row_modifiers_of(call, batch, query_row, segment_key + key);
  const std::int64_t count = smaller(kPanel, keys.keys - key);
  alignas(64) float bias[kPanel];
  alignas(64) float raw[kPanel];
  alignas(64) float gaps[kPanel];
  PanelDecay decay;
  double of_row = 0;
  if (call.alibi_slopes.data) position_gaps(keys, nearest_position(query_row.position, keys), key, gaps);
  if (call.bias.data) read_bias(call, modifiers.bias_at, count, bias);
  if (call.decay.data) {
    read_decay(call, task, query_row.head, key, decay);
    of_row = decay_of_row(call, task, query_row);
  }
  if (call.score_mod) {
    for (std::int64_t v = 0; v < kPanel; v += kLanes) store(raw + v, load(scores + v));
    apply_score_mod(call, batch, query_row, segment_key + key, count, scores, slope);
  }
  const PanelRange visible = range_in_panel(query_row, key);
  bool in_range = true;
  for (int v = 0; v < kPanelVectors; ++v) {
    Mask allowed = visible.lanes(v);
    Vf s = load(scores + v * kLanes);
    const Mask finite =
        greater_equal(splat(kMaxProduct), absolute(call.score_mod ? load(raw + v * kLanes) : s));
    if (call.score_mod) {
      allowed = without(allowed, greater_equal(splat(-__builtin_inff()), s));
    } else if (call.log2_softcap > 0) {
      const Softcapped<VectorMath> capped = softcapped<VectorMath>(s, splat(call.log2_softcap));
      s = capped.score;
      if (slope != nullptr) store(slope + v * kLanes, capped.slope);
    }
    if (call.bias.data) {
      const Vf b = load(bias + v * kLanes);
      allowed = without(allowed, greater_equal(splat(-__builtin_inff()), b));
      s = biased<VectorMath>(s, b, splat(kLog2e));
    }
    if (call.alibi_slopes.data)
      s = with_alibi<VectorMath>(s, splat(modifiers.slope), load(gaps + v * kLanes));
    if (call.decay.data)
      s = call.decay.dtype == DType::f64 ? decayed(s, of_row, decay.wide + v * kLanes)
                                         : decayed(s, static_cast<float>(of_row), decay.narrow + v * kLanes);
    if (query_row.visible != nullptr)
      allowed = both(allowed, load_bytes(query_row.visible + (key - query_row.visible_key) + v * kLanes));
    const Vf bounded = maximum(s, splat(-kMaxScore));
    // !(s <= limit) is true for NaN.
    if (any(without(allowed, both(finite, greater_equal(splat(kMaxScore), s))))) in_range = false;
    store(scores + v * kLanes, select(allowed, bounded, splat(kForbidden)));
  }
  return in_range;
}

/// Whether a rule other than a decay modifies the scores.
HEED_INLINE bool has_modifiers_beside_decay(const Arguments& call) {
  return call.log2_softcap > 0 || call.score_mod || call.bias.data || call.alibi_slopes.data;
}
/// Whether scores are more than scale times a product. Such tiles go through modify_scores(), except those
/// that add a decay (tiles_add_decay()).
HEED_INLINE bool has_score_modifiers(const Arguments& call) {
  return call.decay.data || has_modifiers_beside_decay(call);
}

}  // namespace heed::detail::HEED_ISA
