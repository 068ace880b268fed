// The running softmax of query rows over the keys seen so far, in a form that can be merged (online softmax:
// Milakov and Gimelshein 2018; merging: FlashInfer's attention states, Ye et al. 2025).
//
// With scores s_j in units of log 2, an integer m, and unnormalised weights w_j = kGain * 2^(s_j - m), a
// row's state is
//
//   m          an integer near the largest score        sum        sum_j w_j
//   output     sum_j w_j v_j                            moment     sum_j w_j (s_j - m)
//   max        max_j s_j                                distance   sum_j w_j |p - j|
//   lists      the K largest w_j and their keys
//
// empty      No key; sum is 0. Merging it with any state gives that state, bit for bit.
// rescale    m may be any integer. With another m', every sum of the row is multiplied by 2^(m - m'). That is
//            exact, so a row's bits do not depend on when its m moves. (Only the moment rounds, because m is
//            one of its factors.)
// merge      Two states of different keys are rescaled to the larger m and added. Only the addition rounds.
//
// Additions are not associative, so their order is fixed. Keys are cut into spans at multiples of kSpan.
// Every span begins with an empty state and adds its KV blocks in order, and spans are merged in order. So a
// row has the same bits whichever thread computes which span.
#pragma once

#include "attention/kernels/shared/arguments.hpp"
#include "attention/kernels/shared/exp2.hpp"
#include "attention/kernels/softmax/top_k_lists.hpp"

namespace heed::detail::HEED_ISA {

/// The score of a forbidden key. Allowed scores lie within +-kMaxScore. kForbidden is below all of them
/// by far more than 125, the distance at which a weight becomes 0.
inline constexpr float kForbidden = -0x1p21f;
inline constexpr float kMaxScore = 0x1p20f;

inline constexpr float kHeadroom = 8.0f;              // m moves when a score exceeds it by more than this
inline constexpr float kUnstarted = -1.5f * 0x1p20f;  // threshold of a row without keys; above kForbidden
inline constexpr float kNoThreshold = 0x1p30f;        // above every score

/// The members that states have for each row, besides m and sum.
struct StateParts {
  std::int64_t rows;           ///< a multiple of kGroupRows
  std::int64_t value_columns;  ///< columns of the output, in whole vectors; 0: no output
  std::int64_t top_k;          ///< 0: no lists
  bool statistics;             ///< whether moment is kept
  bool maxima;                 ///< whether max is kept
  bool rounded;                ///< whether the sum of the weights, rounded to bf16, is kept beside `sum`
  bool distance;
};

/// The states of a task's rows. Members that are not kept are nullptr.
struct SoftmaxState {
  float* shift;      ///< [rows]: m
  float* threshold;  ///< [rows]: a score above it requires a larger m
  char* left_out;    ///< [rows]: 1 if f32 cannot hold the row; its state is then meaningless
  float* sum;        ///< [rows][kLanes]: partial sums, like all members [kLanes]
  float* moment;     ///< [rows][kLanes]
  float* max;        ///< [rows][kLanes]: partial maxima
  float* rounded;    ///< [rows][kLanes]: sums of the weights rounded to bf16
  float* distance;   ///< [rows][kLanes]
  float* output;     ///< [rows][value_columns]
  std::int64_t value_columns;
  CandidateColumns lists;      ///< [rows / kLanes][levels][kLanes]
  std::int64_t levels, top_k;  ///< entries per list (whole steps of insert()); valid ones among them
  std::int64_t list_rows;      ///< rows, rounded up to whole vectors
  float* entry_threshold;      ///< [list_rows]: a weight must exceed it to enter the row's list
};

inline SoftmaxState lay_out_state(const StateParts& parts, Memory& memory) {
  const std::int64_t rows = parts.rows;
  const auto lanes = [&](bool kept) { return kept ? memory.floats(rows * kLanes) : nullptr; };
  SoftmaxState s = {};
  s.shift = memory.floats(rows);
  s.threshold = memory.floats(rows);
  s.left_out = memory.take<char>(rows);
  s.sum = lanes(true);
  s.moment = lanes(parts.statistics);
  s.max = lanes(parts.maxima);
  s.rounded = lanes(parts.rounded);
  s.distance = lanes(parts.distance);
  s.value_columns = parts.value_columns;
  s.output = parts.value_columns > 0 ? memory.floats(rows * parts.value_columns) : nullptr;
  s.top_k = parts.top_k;
  s.levels = round_up(parts.top_k, kLevelsAtOnce);
  s.list_rows = parts.top_k > 0 ? round_up(rows, kLanes) : 0;
  s.lists = take_columns(memory, s.list_rows * s.levels);
  s.entry_threshold = memory.floats(s.list_rows);
  return s;
}

/// The lists of the kLanes rows from `row` on; `row` is a multiple of kLanes.
HEED_INLINE CandidateColumns lists_of(const SoftmaxState& s, std::int64_t row) {
  return s.lists.from(row / kLanes * s.levels);
}

/// Sets `count` floats, in whole vectors. `to` may be null.
inline void fill(float* to, std::int64_t count, Vf value) {
  if (to == nullptr) return;
  for (std::int64_t i = 0; i < count; i += kLanes) store(to + i, value);
}

/// Empties the states of `padded_rows` rows, of which the first `rows` exist. With `tracks_maxima`, the first
/// key that a row sees sets its m; otherwise m stays 0.
inline void clear(const SoftmaxState& s, std::int64_t rows, std::int64_t padded_rows, bool tracks_maxima) {
  const float threshold = tracks_maxima ? kUnstarted : kNoThreshold;
  for (std::int64_t r = 0; r < padded_rows; ++r) s.shift[r] = 0;
  for (std::int64_t r = 0; r < padded_rows; ++r) s.threshold[r] = threshold;
  const std::int64_t lanes = padded_rows * kLanes;
  fill(s.sum, lanes, zero());
  fill(s.moment, lanes, zero());
  fill(s.rounded, lanes, zero());
  fill(s.distance, lanes, zero());
  fill(s.max, lanes, splat(kForbidden));
  fill(s.output, padded_rows * s.value_columns, zero());
  clear(s.lists, s.list_rows / kLanes * s.levels);
  for (std::int64_t r = 0; r < s.list_rows; ++r)
    s.entry_threshold[r] = r < rows ? kAnyWeight : __builtin_inff();
}

HEED_INLINE void scale_row(float* x, std::int64_t count, float factor) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(x + i, mul(load(x + i), splat(factor)));
  for (; i < count; ++i) x[i] *= factor;
}

/// Rescale factor 2^step (step <= 0) for a row whose m grew.
inline float power_of(float step) {
  return step < -140.0f ? 0.0f : static_cast<float>(__builtin_ldexp(1.0, static_cast<int>(step)));
}

/// The factor of numbers that belong to shift `from`, now that the row's shift is `to`. Shifts only rise,
/// except in a row that had seen no key; its numbers are 0.
inline float factor_since(float from, float to) { return from < to ? power_of(from - to) : 1; }

inline void scale_list(const SoftmaxState& s, std::int64_t row, float factor) {
  if (row >= s.list_rows) return;
  float* weights = lists_of(s, row).weight + row % kLanes;
  for (std::int64_t i = 0; i < s.levels; ++i)
    if (weights[i * kLanes] > 0) weights[i * kLanes] *= factor;
  const float last = weights[(s.top_k - 1) * kLanes];
  if (s.entry_threshold[row] < __builtin_inff())
    s.entry_threshold[row] = last > kAnyWeight ? last : kAnyWeight;
}

/// Rescales a row that is not empty to a larger m. Returns the factor of its sums.
inline float rescale(const SoftmaxState& s, std::int64_t row, float shift) {
  const float step = s.shift[row] - shift;
  const float factor = power_of(step);
  s.shift[row] = shift;
  float* sum = s.sum + row * kLanes;
  if (s.moment != nullptr) {  // sum_j w_j (s_j - m): both factors change
    float* moment = s.moment + row * kLanes;
    const Vf moved = mul_add(load(sum), splat(step), load(moment));
    store(moment, factor == 0 ? zero() : mul(moved, splat(factor)));
  }
  scale_row(sum, kLanes, factor);
  if (s.rounded != nullptr) scale_row(s.rounded + row * kLanes, kLanes, factor);
  if (s.distance != nullptr) scale_row(s.distance + row * kLanes, kLanes, factor);
  if (s.output != nullptr) scale_row(s.output + row * s.value_columns, s.value_columns, factor);
  if (s.top_k > 0) scale_list(s, row, factor);
  return factor;
}

HEED_INLINE bool is_empty(const SoftmaxState& s, std::int64_t row) {
  return !(reduce_add(load(s.sum + row * kLanes)) > 0);
}

/// The factors by which merging rescaled the sums of two states.
struct MergeFactors {
  float into, from;
};

/// Merges a row of `from` into the same row of `into`, without its list. The keys of `into` all lie before
/// the keys of `from`, which is destroyed.
inline MergeFactors merge_row(const SoftmaxState& into, const SoftmaxState& from, std::int64_t row) {
  if (from.left_out[row] != 0) into.left_out[row] = 1;
  if (is_empty(from, row)) return {1, 1};
  MergeFactors factors = {1, 1};
  const bool first = is_empty(into, row);
  if (first) {
    into.shift[row] = from.shift[row];
  } else if (into.shift[row] < from.shift[row]) {
    factors.into = rescale(into, row, from.shift[row]);
  } else if (from.shift[row] < into.shift[row]) {
    factors.from = rescale(from, row, into.shift[row]);
  }
  const auto join = [&](float* to, const float* x, std::int64_t columns) {
    for (std::int64_t i = row * columns; to != nullptr && i < (row + 1) * columns; i += kLanes)
      store(to + i, first ? load(x + i) : add(load(to + i), load(x + i)));
  };
  join(into.sum, from.sum, kLanes);
  join(into.moment, from.moment, kLanes);
  join(into.rounded, from.rounded, kLanes);
  join(into.distance, from.distance, kLanes);
  join(into.output, from.output, into.value_columns);
  if (into.max != nullptr) {
    float* max = into.max + row * kLanes;
    store(max, maximum(load(max), load(from.max + row * kLanes)));
  }
  return factors;
}

/// Merges the lists of all rows of `from` into the lists of `into`, after merge_row. Of equal weights, the
/// earlier key comes first. `moved` [count][kLanes] is working memory for `count` entries at a time.
inline void merge_lists(const SoftmaxState& into, const SoftmaxState& from, float* moved,
                        std::int64_t count) {
  for (std::int64_t row = 0; row < into.list_rows; row += kLanes) {
    const CandidateColumns entries = lists_of(from, row);
    drop_light_entries(entries, from.levels);
    for (std::int64_t i = 0; i < from.levels; i += count)
      insert(lists_of(into, row), into.levels, entries.from(i), moved, smaller(count, from.levels - i));
  }
}

}  // namespace heed::detail::HEED_ISA
