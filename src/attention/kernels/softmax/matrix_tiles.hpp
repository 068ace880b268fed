// Both products by matrix tiles. A tile product has 16 x 16 results and sums over 16 pairs of bf16. Scores go
// by way of memory to vectors, and become weights in registers. Weights become an operand of the product with
// values, rounded to bf16 or split into bf16 parts.
#pragma once

#include "attention/kernels/softmax/row_statistics.hpp"
#include "attention/kernels/softmax/softmax.hpp"
#include "attention/kernels/softmax/tile_products.hpp"
#include "attention/kernels/softmax/top_k.hpp"

namespace heed::detail::HEED_ISA {

/// Scores of a group's rows against a panel, before scaling, tile after tile.
using MatrixScores = float[kPanelVectors][kGroupRows][kLanes];

/// A group's weights as an operand: [part][step of 32 keys][row][kLanes].
inline constexpr std::int64_t kStepKeys = 32;
inline constexpr std::int64_t kWeightStep = kGroupRows * kLanes;
inline constexpr std::int64_t kWeightPart = kGroupRows * kKvBlock / 2;

/// Writes a row's weights for kStepKeys keys, from `key` of the KV block on, to the operand `to`. If weights
/// are rounded to one part, the output is divided by the sum of the rounded weights. The output is then a
/// mean by slightly wrong weights, not a wrong sum.
template <class Format>
HEED_INLINE Vf split_weights(float* to, std::int64_t row, std::int64_t key, Vf a, Vf b) {
  to += key / kStepKeys * kWeightStep + row % kGroupRows * kLanes;
  return Format::split_weights(a, b, reinterpret_cast<std::uint16_t*>(to), 2 * kWeightPart);
}

/// The operands of two groups or KV blocks take turns. Returns the one after `operand`.
template <class Format>
HEED_INLINE float* other_operand(float* first, const float* operand) {
  return operand == first ? first + Format::kWeightParts * kWeightPart : first;
}

HEED_INLINE void add_rounded(const TaskState& state, std::int64_t row, Vf sum) {
  float* sums = state.sums_rounded ? state.w.softmax.sum : state.w.softmax.rounded;
  if (sums != nullptr) store(sums + row * kLanes, add(load(sums + row * kLanes), sum));
}

/// Converts a row's weights of a panel to an operand, which begins at `to`. Returns their lane-wise sum.
template <class Format>
HEED_INLINE Vf split_panel(float* to, const Vf (&weights)[kPanelVectors]) {
  const auto split = [&](int v) __attribute__((always_inline)) {
    return Format::split_weights(weights[v], weights[v + 1],
                                 reinterpret_cast<std::uint16_t*>(to + v / 2 * kWeightStep), 2 * kWeightPart);
  };
  Vf sum = split(0);
#pragma GCC unroll 2
  for (int v = 2; v + 1 < kPanelVectors; v += 2) sum = add(sum, split(v));
  return sum;
}

template <class Format>
void scale_split_weights(const TaskState& state, std::int64_t row, std::int64_t done, float factor) {
  for (int part = 0; part < Format::kWeightParts; ++part)
    for (std::int64_t step = 0; step < done / kStepKeys; ++step) {
      auto* at = reinterpret_cast<std::uint16_t*>(state.weight_parts + part * kWeightPart +
                                                  step * kWeightStep + row % kGroupRows * kLanes);
      const Vf first = mul(load_bf16(at), splat(factor));
      store_bf16(at, first, mul(load_bf16(at + kLanes), splat(factor)));
    }
}

/// Address of a row's f32 weights of a panel, `done` keys after the KV block's first key.
HEED_INLINE float* panel_weights(const Workspace& w, std::int64_t row, std::int64_t done) {
  return w.weights + row % kGroupRows * kKvBlock + done;
}

/// Converts scores of a group's rows to weights, if all of a panel's keys are allowed, or with kTraits.tail a
/// range of them: row by row, in equal shares of `calls` calls, between tile products. Rows whose scores
/// outgrow their shift are left for softmax_general().
template <ScoreTraits kTraits, class Format>
class SoftmaxRows {
 public:
  /// The same where rows may see a range of the keys.
  using OfRanges = SoftmaxRows<ScoreTraits{kTraits.tracks_maxima, kTraits.keeps_statistics, true,
                                           kTraits.candidates, kTraits.sums},
                               Format>;

  /// `waits`: candidates wait in columns of the workspace. Otherwise they are marked.
  SoftmaxRows(const TaskState& state, std::int64_t row, std::int64_t rows, bool waits)
      : all_(tile_rows(state, 0)),
        scale_(in_register(splat(state.call.log2_scale))),
        query_row_(state.w.query_row + row),
        first_operand_(state.splits_weights ? state.weight_parts : nullptr),
        first_weights_(state.stores_weights ? panel_weights(state.w, row, 0) : nullptr),
        stores_all_(has_panel_statistics(state.call) || (state.call.output.data && !state.splits_weights)),
        first_bits_(state.w.candidate_bits),
        waiting_(waits ? state.w.waiting : WaitingCandidates{}),
        first_marks_(state.w.marks),
        marks_(state.w.marks),
        row_(row),
        rows_(rows),
        rounded_(state.sums_rounded ? state.w.softmax.sum : state.w.softmax.rounded) {
    if (rounded_ != nullptr) rounded_ += row * kLanes;
    if (kTraits.candidates && rows < kGroupRows)  // rows beyond have no candidates
      for (std::int64_t i = 0; i < 2 * kPanelVectors * kGroupRows; ++i) first_marks_[i] = 0;
  }

  static constexpr bool kMarksCandidates = kTraits.candidates;

  [[nodiscard]] HEED_INLINE float* operand() const { return first_operand_; }
  /// Goes on to the other one of two operands, of which `first` is the first one. Returns the one before.
  HEED_INLINE float* swap_operands(float* first) {
    float* before = first_operand_;
    first_operand_ = other_operand<Format>(first, before);
    return before;
  }

  /// Begins a panel.
  HEED_INLINE void start(MatrixScores& scores, const PanelKeys& panel, std::int64_t calls) {
    const std::int64_t done = panel.done;
    scores_ = scores[0][0];
    key_ = panel.key;
    operand_ = first_operand_ == nullptr ? nullptr : first_operand_ + done * (kWeightStep / kStepKeys);
    weights_ = first_weights_ == nullptr ? nullptr : first_weights_ + done;
    if (kTraits.candidates) all_.candidate_bits = first_bits_ + done / kLanes;
    shares_ = {rows_, calls};
    if (kTraits.candidates) marks_ = first_marks_ + (marks_ == first_marks_ ? kPanelVectors * kGroupRows : 0);
    outgrown_ = 0;
  }

  HEED_INLINE void operator()() {
    shares_.take([&](std::int64_t r) __attribute__((always_inline)) { convert_row(r); });
  }
  /// Converts the rows that are left. Returns a bit for each row whose scores outgrew its shift.
  HEED_INLINE std::uint32_t finish() {
    shares_.finish([&](std::int64_t r) __attribute__((always_inline)) { convert_row(r); });
    return outgrown_;
  }

  /// The candidates of the panel's rows. They stay until the next panel but one begins.
  [[nodiscard]] HEED_INLINE PanelCandidates candidates() const { return {scores_, marks_, key_}; }
  /// Appends a panel's candidates, if there is one, to the columns that wait. Returns whether some are long.
  HEED_INLINE bool append_candidates(const PanelCandidates& from) {
    if (!kTraits.candidates || from.weights == nullptr) return false;
    bool is_long = false;
#pragma GCC unroll 2
    for (std::int64_t i = 0; i < kGroupRows / kLanes; ++i) {
      const CandidateColumns to = waiting_.columns.from(i * kMostWaiting);
      std::int64_t count = waiting_.count[i];
#pragma GCC unroll 2
      for (int v = 0; v < kPanelVectors; v += 2) count = append(to, count, from, i * kLanes, v);
      waiting_.count[i] = count;
      is_long |= count >= kLongColumn;
    }
    return is_long;
  }
  /// The same for the panel of start(). Without columns, its candidates are marked and their weights stored.
  HEED_INLINE bool keep_candidates() {
    if constexpr (!kTraits.candidates) return false;
    if (waiting_.count != nullptr) return append_candidates(candidates());
    for (std::int64_t r = 0; r < rows_; ++r) mark_candidates(r);
    return false;
  }

 private:
  // Products of parts have so many tile products a row that a call costs nothing, and so many places to
  // inline that the compiler takes minutes.
  static constexpr bool kInlined = Format::kParts == 1 && !kEmulatesMatrixTiles;
  // Scores that are cut to a range are scaled already, and need no other cut.
  static constexpr ScoreTraits kWhole = {kTraits.tracks_maxima, kTraits.keeps_statistics, false,
                                         kTraits.candidates, kTraits.sums};
  struct Scaled {
    static constexpr bool kScalesScores = Format::kScalesScores && !kTraits.tail;
  };
  static constexpr ScoreTraits kUnmarked = {kTraits.tracks_maxima, kTraits.keeps_statistics, kTraits.tail,
                                            false, kTraits.sums};
  // Sums of rounded weights alone belong to weights that become an operand.
  static constexpr bool kAlwaysSplits = !kTraits.sums;

  HEED_INLINE void mark_candidates(std::int64_t r) {
    CandidateBits* to = all_.candidate_bits + (row_ + r) * all_.candidate_ld;
#pragma GCC unroll 4
    for (int v = 0; v < kPanelVectors; ++v) {
      to[v] = marks_[v * kGroupRows + r];
      if (marks_[v * kGroupRows + r] != 0)
        store(weights_ + r * kKvBlock + v * kLanes, load(scores_ + (v * kGroupRows + r) * kLanes));
    }
  }
  HEED_INLINE void convert_row(std::int64_t r) {
    if constexpr (kInlined)
      convert(r);
    else
      convert_out_of_line(r);
  }
  [[gnu::noinline]] void convert_out_of_line(std::int64_t r) { convert(r); }
  HEED_INLINE void convert(std::int64_t r) {
    Tile<1, kPanelVectors> score;
    Vf weights[kPanelVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kPanelVectors; ++v) score[0][v] = load(scores_ + (v * kGroupRows + r) * kLanes);
    if constexpr (kTraits.tail) {
      const PanelRange range = range_in_panel(query_row_[r], key_);
      if constexpr (Format::kScalesScores) scale_tile(score, scale_);
#pragma GCC unroll 4
      for (int v = 0; v < kPanelVectors; ++v)
        score[0][v] = select(range.lanes(v), score[0][v], splat(kForbidden));
    }
    if (!fits_shift<kWhole, Scaled>(score, all_, row_ + r, Mask{}, scale_, DecayTerms{})) {
      outgrown_ |= std::uint32_t{1} << r;
      if constexpr (kTraits.candidates)
#pragma GCC unroll 4
        for (int v = 0; v < kPanelVectors; ++v) marks_[v * kGroupRows + r] = 0;
      return;
    }
    exp_row<kUnmarked>(
        score[0], all_, row_ + r,
        exp2_, [&](std::size_t v, Vf p) __attribute__((always_inline)) { weights[v] = p; });
    if (kAlwaysSplits || operand_ != nullptr) {
      const Vf sum = split_panel<Format>(operand_ + r * kLanes, weights);
      if (kAlwaysSplits || rounded_ != nullptr) {
        float* to = rounded_ + r * kLanes;
        store(to, add(load(to), sum));
      }
    }
    if constexpr (kTraits.candidates) {
      const Vf entry = splat(all_.entry_threshold[row_ + r]);
#pragma GCC unroll 4
      for (int v = 0; v < kPanelVectors; ++v)
        marks_[v * kGroupRows + r] = static_cast<CandidateBits>(bits_of(greater(weights[v], entry)));
#pragma GCC unroll 4
      for (int v = 0; v < kPanelVectors; ++v) store(scores_ + (v * kGroupRows + r) * kLanes, weights[v]);
    }
    if (kTraits.candidates ? stores_all_ : weights_ != nullptr) {
#pragma GCC unroll 4
      for (int v = 0; v < kPanelVectors; ++v) store(weights_ + r * kKvBlock + v * kLanes, weights[v]);
    }
  }

  TileRows all_;
  Vf scale_;
  Exp2InRegisters exp2_;
  const QueryRow* query_row_;
  float *first_operand_, *first_weights_;  // of the KV block
  bool stores_all_;                        // with candidates: whether the weights of all rows are stored
  CandidateBits* first_bits_;
  WaitingCandidates waiting_;            // `count` is nullptr: candidates are marked
  CandidateBits *first_marks_, *marks_;  // [kPanelVectors][kGroupRows], of the panel
  std::int64_t key_ = 0;
  float* scores_ = nullptr;   // with kTraits.candidates, weights take their place
  float* operand_ = nullptr;  // null: weights do not become an operand
  float* weights_ = nullptr;  // null: they are not stored
  std::int64_t row_, rows_;
  float* rounded_;              // sums of rounded weights; null: none
  EqualShares shares_;          // of rows
  std::uint32_t outgrown_ = 0;  // a bit for each row
};

/// Calls f with a null pointer to the type of SoftmaxRows that a task needs.
template <class Format, class F>
void with_softmax_rows(const TaskState& state, F f) {
  const auto with = [&](auto tracks) {
    constexpr bool kTracks = decltype(tracks)::value == 1;
    if (state.call.top_k > 0)
      f(static_cast<SoftmaxRows<ScoreTraits{kTracks, true, false, true}, Format>*>(nullptr));
    else if (state.keeps_statistics)
      f(static_cast<SoftmaxRows<ScoreTraits{kTracks, true, false}, Format>*>(nullptr));
    else if (state.sums_rounded)
      f(static_cast<SoftmaxRows<ScoreTraits{kTracks, false, false, false, false}, Format>*>(nullptr));
    else
      f(static_cast<SoftmaxRows<ScoreTraits{kTracks, false, false}, Format>*>(nullptr));
  };
  if (state.tracks_maxima)
    with(Constant<1>{});
  else
    with(Constant<0>{});
}

/// The same for row `r` of the scores, which is row `row` of the task, by way of memory: applies masks and
/// score modifiers, and moves the row's shift if necessary. `checked`: see softmax_scores().
template <class Format>
void softmax_general(TaskState& state, const MatrixScores& scores, std::int64_t r, std::int64_t row,
                     const PanelKeys& panel, bool checked) {
  alignas(64) float of_row[1][kPanel];
#pragma GCC unroll 4
  for (int v = 0; v < kPanelVectors; ++v)
    store(of_row[0] + v * kLanes, mul(load(scores[v][r]), splat(state.call.log2_scale)));
  float* weights = panel_weights(state.w, row, panel.done);
  softmax_scores(state, row, panel.key, of_row, weights, panel.done, checked);
  if (!state.splits_weights) return;
  Vf split[kPanelVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kPanelVectors; ++v) split[v] = load(weights + v * kLanes);
  add_rounded(
      state, row,
      split_panel<Format>(state.weight_parts + panel.done / kStepKeys * kWeightStep + r * kLanes, split));
}

/// Whether all rows of a group go through SoftmaxRows for a panel.
inline bool is_plain(const TaskState& state, const RowGroup& group, const PanelKeys& panel) {
  return !state.modifies_scores && group.started && group.full_begin <= panel.key &&
         group.full_end >= panel.key + kPanel && panel.keys == kPanel;
}

/// Whether they do so with ranges of the panel's keys: SoftmaxRows::OfRanges.
inline bool is_cut_to_ranges(const TaskState& state, const RowGroup& group) {
  return !state.modifies_scores && group.started && !group.scattered;
}

/// Calls softmax_general() for some of a group's `rows` rows from `row` on. `which` has a bit for each.
template <class Format>
void softmax_by_memory(TaskState& state, std::int64_t row, std::int64_t rows, std::uint32_t which,
                       const PanelKeys& panel, const MatrixScores& scores, bool checked) {
  const MatrixTiles::Lent lent(static_cast<bool>(state.call.score_mod));
  for (std::int64_t r = 0; r < rows; ++r)
    if ((which >> r & 1) != 0) softmax_general<Format>(state, scores, r, row + r, panel, checked);
}

inline constexpr std::uint32_t kAllRows = ~std::uint32_t{0};

/// Computes the weights of a group of `rows` rows from `row` on for one panel, from unscaled scores.
/// `in_range`: the scores are finite, and weights can be computed from them.
template <class Format>
void softmax_panel(TaskState& state, std::int64_t row, std::int64_t rows, const PanelKeys& panel,
                   MatrixScores& scores, bool in_range) {
  RowGroup& group = state.w.group[row / kGroupRows];
  std::uint32_t rest = kAllRows;
  if (panel.keys != kPanel) count_path(state.call.paths, Path::tail);
  if (in_range && is_plain(state, group, panel)) {
    with_softmax_rows<Format>(state, [&]<class Rows>(Rows*) {
      Rows of_group(state, row, rows, false);
      of_group.start(scores, panel, 1);
      rest = of_group.finish();
      of_group.keep_candidates();
    });
    count_path(state.call.paths, Path::outgrown, __builtin_popcount(rest));
  } else {
    count_path(state.call.paths, Path::masked);
  }
  softmax_by_memory<Format>(state, row, rows, rest, panel, scores, !in_range);
  group.started = true;
}

/// Converts a group's weights for keys [begin, end) of a KV block to an operand. Zeros fill the first and the
/// last step.
template <class Format>
void split_group(const TaskState& state, std::int64_t row, std::int64_t rows, const KeyRange& keys,
                 const KeyRange& steps) {
  const Workspace& w = state.w;
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* from = w.weights + r * kKvBlock;
    const auto weights = [&](std::int64_t k) {
      return k >= keys.begin && k < keys.end ? load(from + k) : zero();
    };
    Vf sum = zero();
    for (std::int64_t k = steps.begin; k < steps.end; k += kStepKeys)
      sum = add(sum, split_weights<Format>(state.weight_parts, row + r, k, weights(k), weights(k + kLanes)));
    add_rounded(state, row + r, sum);
  }
}

/// The product of a group's weights and the values of a KV block.
struct ValueProduct : GroupProduct {
  float factor = 1;
};

/// Sets up the product of a group's weights of a KV block, which state.weight_parts or state.weights holds.
/// It has no rows if the group sees none of the keys.
template <class Format>
HEED_INLINE void set_value_product(ValueProduct& p, const TaskState& state, std::int64_t row,
                                   std::int64_t rows, std::int64_t key, const KvBlock& kv_block) {
  static_assert(kKvBlock % kStepKeys == 0);
  const Workspace& w = state.w;
  const KeyRange keys = written_keys(w.group[row / kGroupRows], key, kv_block.count);
  p.rows = 0;
  if (keys.begin >= keys.end) return;
  const KeyRange steps = {keys.begin / kStepKeys * kStepKeys, round_up(keys.end, kStepKeys)};
  if (!state.splits_weights) split_group<Format>(state, row, rows, keys, steps);
  const std::int64_t pairs = lanes_of<Format>(kv_block.count);
  const std::int64_t first = steps.begin / kStepKeys;
  p.rows = rows;
  p.a = {state.weight_parts + first * kWeightStep, kLanes, kMatrixRows * kLanes, kWeightStep, kWeightPart};
  p.b = {const_cast<float*>(kv_block.values) + first * 16 * kLanes, 16, pairs * 16, 16 * 16,
         pairs * w.value_columns};
  p.c = result_rows(w.softmax.output + row * w.value_columns, w.value_columns);
  p.steps = (steps.end - steps.begin) / kStepKeys;
  p.columns = w.value_columns / kLanes;
  p.factor = kv_block.measured.value_factor;
}

/// Adds weights x values of a group and one KV block to the output.
template <class Format>
void matrix_value_block(TaskState& state, std::int64_t row, std::int64_t rows, std::int64_t key,
                        const KvBlock& kv_block) {
  ValueProduct p;
  set_value_product<Format>(p, state, row, rows, key, kv_block);
  if (p.rows == 0) return;
  add_product<typename Format::WeightsByElements>(p, p.factor, state.w.product);
}

}  // namespace heed::detail::HEED_ISA
