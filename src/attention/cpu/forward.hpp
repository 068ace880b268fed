// The forward pass of one task: online softmax over chunks of keys (Milakov and Gimelshein 2018; Dao 2022).
//
// For a row, with weights in flight w_j = 2^(s_j - shift) and an integer shift near the largest score so far:
//   sum = sum_j w_j,   output = sum_j w_j v_j,   and at the end   out = output / sum,  lse = shift +
//   log2(sum).
// When a score exceeds shift + 8, shift moves up to it, and what has been summed is multiplied by 2^(old -
// new): an exact power of two, so that the result does not depend on when, or whether, shifts move. That is
// why a row gives the same bits whatever rows it is computed with.
//
// By Cauchy and Schwarz |s| <= |q| |k|. While that bound stays under kBoundedScore no shift is needed at all,
// and tiles skip the search for maxima.
#pragma once

#include "attention/cpu/direct.hpp"
#include "attention/cpu/dropout.hpp"
#include "attention/cpu/finish.hpp"
#include "attention/cpu/score.hpp"

namespace heed::detail::HEED_ISA {

using cpu::Outcome;

/// Rows beyond the last, up to a whole tile, repeat its site and have queries of 0.
inline void pad_rows(Run& run) {
  Work& w = run.w;
  for (std::int64_t r = run.rows; r < run.padded_rows; ++r) {
    w.site[r] = w.site[run.rows - 1];
    for (std::int64_t d = 0; d < w.padded_depth; d += kLanes) store(w.query + r * w.padded_depth + d, zero());
  }
}

inline void find_groups(Run& run, bool started) {
  for (std::int64_t r = 0; r < run.padded_rows; r += kGroupRows)
    run.w.group[r / kGroupRows] = group_of(run.w.site + r, smaller(kGroupRows, run.padded_rows - r), started);
}

template <bool kPairs = kHasPairs>
float pack_row(const Run& run, std::int64_t at, std::int64_t row, float scale) {
  const Work& w = run.w;
  float* query = w.query + row * w.padded_depth;
  if constexpr (kPairs) {
    if (run.pairs)
      return pack_query_pairs<kPairs>(run.call.query, at, w.depth, run.call.scale, query, w.padded_depth);
  }
  return pack_query(run.call.query, at, w.depth, scale, query, w.padded_depth);
}

/// The sum of squares of one query, read where it lies.
inline float square_of(const Run& run, std::int64_t at) {
  const float* query = static_cast<const float*>(run.call.query.data) + at;
  Vf squares = zero();
  for (std::int64_t d = 0; d < run.w.depth; d += kLanes) {
    const Vf x = load(query + d);
    squares = mul_add(x, x, squares);
  }
  return reduce_add(squares);
}

/// Points run.queries at the caller's memory where tiles can read it, and otherwise packs the rows, times
/// `scale`. Returns the largest sum of squares of a query, or a negative number where one is not finite.
inline float find_queries(Run& run, float scale) {
  const Call& call = run.call;
  const Task& task = run.task;
  Work& w = run.w;
  const bool direct = !run.pairs && scale == 1.0f && task.head_count == 1 && run.rows == run.padded_rows &&
                      in_place(call.query, call.head_dim);
  float largest = 0;
  float total = 0;
  for (std::int64_t r = 0; r < run.rows; ++r) {
    const std::int64_t at = offset_of(call.query.stride, task.batch, w.site[r].head, w.site[r].index);
    const float squares = direct ? square_of(run, at) : pack_row(run, at, r, scale);
    largest = squares > largest ? squares : largest;
    total += squares;
  }
  run.queries = {w.query, w.padded_depth};
  if (direct)
    run.queries = {static_cast<const float*>(call.query.data) +
                       offset_of(call.query.stride, task.batch, task.head_begin, task.row_begin),
                   call.query.stride[2]};
  return total < 0x1p120f ? largest : -1.0f;
}

/// Sets up sites and states of the task's rows.
inline void start_rows(Run& run) {
  const Call& call = run.call;
  const Task& task = run.task;
  Work& w = run.w;
  std::int64_t r = 0;
  for (std::int64_t head = task.head_begin; head < task.head_begin + task.head_count; ++head)
    for (std::int64_t index = task.row_begin; index < task.row_end; ++index, ++r)
      w.site[r] = site_of(call, task, head, index);
  pad_rows(run);
  for (r = 0; r < run.padded_rows; ++r) {
    w.rows.shift[r] = 0;
    w.rows.threshold[r] = run.tracked ? kUnstarted : kNoThreshold;
    store(w.rows.sum + r * kLanes, zero());
    if (run.pairs) store(w.rows.rounded + r * kLanes, zero());
  }
  for (r = 0; run.observed && r < run.padded_rows; ++r) {
    store(w.rows.entropy + r * kLanes, zero());
    store(w.rows.max + r * kLanes, splat(kForbidden));
  }
  clear_observed(run);
  for (std::int64_t i = 0; i < run.padded_rows * w.value_columns; i += kLanes) {
    store(w.output + i, zero());
    if (w.step < kChunk) store(w.partial + i, zero());
  }
  find_groups(run, !run.tracked);
}

/// From here on shifts move: rows that have weights keep their shift of 0, and those that have none wait for
/// a key.
inline void start_tracking(Run& run) {
  run.tracked = true;
  for (std::int64_t r = 0; r < run.padded_rows; ++r) {
    const bool started = reduce_add(load(run.w.rows.sum + r * kLanes)) > 0;
    run.w.rows.threshold[r] = started ? kHeadroom : kUnstarted;
    if (!started) run.w.group[r / kGroupRows].started = false;
  }
}

/// A variant of score_column, and how many rows its tiles have.
struct TileColumn {
  decltype(&score_column<Column{}, kTileRows, kPanelVectors>) score;
  std::int64_t height;
};

/// What a run needs of whole panels. Where rows are whole groups (`tall`), pairs take taller tiles.
template <bool kPairs, bool kTall>
TileColumn column_for(const Run& run) {
  constexpr std::int64_t kHeight = kPairs && kTall ? kPairRows : kTileRows;
  if (run.tracked)
    return {run.observed ? score_column<Column{true, true, false, kPairs}, kHeight, kPanelVectors>
                         : score_column<Column{true, false, false, kPairs}, kHeight, kPanelVectors>,
            kHeight};
  return {run.observed ? score_column<Column{false, true, false, kPairs}, kHeight, kPanelVectors>
                       : score_column<Column{false, false, false, kPairs}, kHeight, kPanelVectors>,
          kHeight};
}

template <Column kColumn>
TileColumn tail_column_of(std::int64_t vectors) {
  return {vectors == 1   ? score_column<kColumn, kTileRows, 1>
          : vectors == 2 ? score_column<kColumn, kTileRows, 2>
                         : score_column<kColumn, kTileRows, 3>,
          kTileRows};
}

/// The same for the last panel of a sequence, of `vectors` vectors. Tall tiles have 12 accumulators for any
/// number of vectors; they are for runs whose tiles cannot outgrow a shift.
template <bool kPairs, bool kTall>
TileColumn tail_column_for(const Run& run, std::int64_t vectors) {
  if (run.observed) return tail_column_of<Column{true, true, true, kPairs}>(vectors);
  if (run.tracked) return tail_column_of<Column{true, false, true, kPairs}>(vectors);
  constexpr Column kPlain = {false, false, true, kPairs};
  if constexpr (kTall) {
    if (vectors == 1) return {score_column<kPlain, 12, 1>, 12};
    if (vectors == 2) return {score_column<kPlain, 6, 2>, 6};
  }
  return tail_column_of<kPlain>(vectors);
}

/// A panel of a chunk: `keys` keys from `key` on.
struct PanelKeys {
  const float* data;
  std::int64_t key, keys;
  std::int64_t done;  ///< keys of the chunk before it
};

/// Weights of `rows` rows from `row` on (`at` in their block) for a panel that is allowed for all of them.
template <bool kPairs, bool kTall>
bool score_plain(Run& run, std::int64_t row, std::int64_t at, std::int64_t rows, const PanelKeys& panel,
                 const Upcoming& upcoming) {
  const Work& w = run.w;
  const std::int64_t ldq = run.queries.stride;
  const std::int64_t vectors = (panel.keys + kLanes - 1) / kLanes;
  const std::int64_t last_keys = panel.keys - (vectors - 1) * kLanes;
  const TileColumn column =
      panel.keys == kPanel ? column_for<kPairs, kTall>(run) : tail_column_for<kPairs, kTall>(run, vectors);
  for (std::int64_t r = 0; r < rows; r += column.height) {
    float* weights = w.weights + at * kChunk + panel.done;
    r += column.height * column.score(run.queries.data + (row + r) * ldq, ldq, panel.data,
                                      kPairs ? (w.depth + 1) / 2 : w.depth, w.rows, row + r,
                                      (rows - r) / column.height, weights + r * kChunk, kChunk, last_keys,
                                      kPairs ? run.call.scale : 1.0f, upcoming.from(row + r));
    if (r == rows) break;
    const auto general = column.height == kTileRows ? score_general<kTileRows> : score_general<kPairRows>;
    if (!general(run, row + r, panel.key, panel.data, weights + r * kChunk, panel.done)) return false;
  }
  return true;
}

/// The same for whole groups, and then for what is left.
template <bool kPairs = kHasPairs>
bool score_plain_rows(Run& run, std::int64_t row, std::int64_t at, std::int64_t rows, const PanelKeys& panel,
                      const Upcoming& upcoming) {
  const std::int64_t tall = rows / kGroupRows * kGroupRows;
  if constexpr (kPairs) {
    if (!run.pairs) return score_plain_rows<false>(run, row, at, rows, panel, upcoming);
  }
  return score_plain<kPairs, true>(run, row, at, tall, panel, upcoming) &&
         score_plain<kPairs, false>(run, row + tall, at + tall, rows - tall, panel, upcoming);
}

/// Weights of a block of `rows` rows from `row` on for one panel.
inline bool score_panel(Run& run, std::int64_t row, std::int64_t rows, const PanelKeys& panel,
                        const Upcoming& upcoming) {
  Group* groups = run.w.group + row / kGroupRows;
  const std::int64_t count = (rows + kGroupRows - 1) / kGroupRows;
  const auto is_plain = [&](const Group& g) {
    return !run.transforms && g.started && g.inner_low <= panel.key && g.inner_high >= panel.key + panel.keys;
  };
  for (std::int64_t g = 0; g < count;) {
    if (groups[g].low >= panel.key + kPanel || groups[g].high <= panel.key) {
      ++g;
      continue;
    }
    const std::int64_t at = g * kGroupRows;
    if (is_plain(groups[g])) {
      while (g < count && is_plain(groups[g])) ++g;
      if (!score_plain_rows(run, row + at, at, smaller(g * kGroupRows, rows) - at, panel, upcoming))
        return false;
      continue;
    }
    for (std::int64_t r = at; r < smaller(at + kGroupRows, rows); r += kTileRows)
      if (!score_general<kTileRows>(run, row + r, panel.key, panel.data,
                                    run.w.weights + r * kChunk + panel.done, panel.done))
        return false;
    groups[g++].started = true;
  }
  return true;
}

/// Weights of a block of `rows` rows from `row` on for one chunk.
inline bool score_block(Run& run, std::int64_t row, std::int64_t rows, std::int64_t chunk_key,
                        const Chunk& chunk) {
  const std::int64_t depth = run.pairs ? (run.w.depth + 1) / 2 : run.w.depth;
  for (std::int64_t p = 0; p * kPanel < chunk.count; ++p) {
    const PanelKeys panel = {chunk.keys + p * kPanel * depth, chunk_key + p * kPanel,
                             smaller(kPanel, chunk.count - p * kPanel), p * kPanel};
    if (!score_panel(run, row, rows, panel, chunk.next_keys.from(p * run.padded_rows))) return false;
    observe_panel(run, row, rows, panel.key, panel.done, panel.keys);
  }
  return true;
}

/// One group (or what is left of one: 4 or 8 rows) times one column panel of values.
template <int kVectors, bool kContinue, bool kPairs>
void group_values(std::int64_t rows, const float* weights, const float* values, std::int64_t ldv,
                  std::int64_t keys, float* output, std::int64_t ldo) {
  constexpr int kTall = kVectors <= (kRegisters >= 32 ? 2 : 1) ? kGroupRows : kValueRows;
  constexpr std::int64_t kLd = kPairs ? kChunk / 2 : kChunk;
  std::int64_t r = 0;
  if (rows == kGroupRows)
    for (; r < rows; r += kTall)
      value_tile<kTall, kVectors, kContinue, kPairs>(weights + r * kLd, kLd, values, ldv, keys,
                                                     output + r * ldo, ldo);
  for (; r < rows; r += kTileRows)
    value_tile<kTileRows, kVectors, kContinue, kPairs>(weights + r * kLd, kLd, values, ldv, keys,
                                                       output + r * ldo, ldo);
}

template <bool kContinue, bool kPairs>
auto group_values_of(std::int64_t vectors) {
  return vectors == 1   ? group_values<1, kContinue, kPairs>
         : vectors == 2 ? group_values<2, kContinue, kPairs>
         : vectors == 3 ? group_values<3, kContinue, kPairs>
                        : group_values<4, kContinue, kPairs>;
}

/// The same with pairs of bf16: the weights of a group are rounded to pairs of neighbouring keys first.
template <bool kPairs>
void value_pairs_block(Run& run, std::int64_t row, std::int64_t rows, std::int64_t key, const Chunk& chunk) {
  const Work& w = run.w;
  const std::int64_t vectors = w.value_columns / kLanes;
  const std::int64_t chunk_pairs = (chunk.count + 1) / 2;
  for (std::int64_t r = 0; r < rows; r += kGroupRows) {
    const Group& group = w.group[(row + r) / kGroupRows];
    const std::int64_t group_rows = smaller(kGroupRows, rows - r);
    const std::int64_t begin = larger(0, group.low - key) / kPanel * kPanel;
    const std::int64_t end = smaller(chunk.count, group.high - key);
    if (begin >= end) continue;
    // A panel's weights beyond its keys are 0, so whole vectors can be rounded. Their sum as rounded divides
    // the output: a mean by weights that are a little off, not a sum that is.
    for (std::int64_t i = 0; i < group_rows; ++i) {
      auto* to = reinterpret_cast<std::uint16_t*>(w.weight_pairs + i * (kChunk / 2));
      float* rounded = w.rows.rounded + (row + r + i) * kLanes;
      const float* from = w.weights + (r + i) * kChunk;
      Vf sum = load(rounded);
      std::int64_t k = begin;
      for (; k + kLanes < end; k += 2 * kLanes)
        sum = dot_pairs(store_bf16(to + k, load(from + k), load(from + k + kLanes)), pairs_of_one(), sum);
      if (k < end) sum = add(sum, store_bf16(to + k, load(from + k)));
      store(rounded, sum);
    }
    for (std::int64_t first = 0; first < vectors; first += kValueVectors) {
      const std::int64_t here = smaller(kValueVectors, vectors - first);
      const float* values = chunk.values + (first * chunk_pairs + begin / 2 * here) * kLanes;
      group_values_of<false, kPairs>(here)(
          group_rows, w.weight_pairs + begin / 2, values, here * kLanes, (end - begin + 1) / 2,
          w.output + (row + r) * w.value_columns + first * kLanes, w.value_columns);
    }
  }
}

/// Adds weights x values of a block for one step to the output, or to the sums of the chunk that it is part
/// of.
inline void value_block(Run& run, std::int64_t row, std::int64_t rows, std::int64_t key, const Chunk& chunk) {
  const Work& w = run.w;
  const bool whole = w.step == kChunk;
  const std::int64_t vectors = w.value_columns / kLanes;
  for (std::int64_t first = 0; first < vectors; first += kValueVectors) {
    const std::int64_t here = smaller(kValueVectors, vectors - first);
    const auto multiply = whole ? group_values_of<false, false>(here) : group_values_of<true, false>(here);
    const float* values = chunk.panel(first * kLanes);
    const std::int64_t ldv = chunk.stride(here);
    for (std::int64_t r = 0; r < rows; r += kGroupRows) {
      const Group& group = w.group[(row + r) / kGroupRows];
      // Weights exist from the panel of the first allowed key on.
      const std::int64_t begin = larger(0, group.low - key) / kPanel * kPanel;
      const std::int64_t end = smaller(chunk.count, group.high - key);
      if (begin >= end) continue;
      chunk.next_values.from(first / kValueVectors * run.padded_rows).fetch(row + r, kGroupRows);
      multiply(smaller(kGroupRows, rows - r), w.weights + r * kChunk + begin, values + begin * ldv, ldv,
               end - begin, (whole ? w.output : w.partial) + (row + r) * w.value_columns + first * kLanes,
               w.value_columns);
    }
  }
}

/// Closes a chunk that was done in steps: its sums go to the output, in the order of a chunk done at once.
inline void add_partial(Run& run) {
  const Work& w = run.w;
  for (std::int64_t i = 0; i < run.padded_rows * w.value_columns; i += kLanes) {
    store(w.output + i, add(load(w.output + i), load(w.partial + i)));
    store(w.partial + i, zero());
  }
}

/// Drops weights of a block for one step, after their sums and all that is asked of them have been taken.
inline void drop_block(Run& run, std::int64_t row, std::int64_t rows, std::int64_t step_key,
                       std::int64_t keys) {
  const Call& call = run.call;
  if (call.dropout.threshold == 0) return;
  alignas(64) float keep[kPanel];
  std::int64_t head = -1;
  HeadBits bits{};
  for (std::int64_t r = 0; r < rows && row + r < run.rows; ++r) {
    const Site& site = run.w.site[row + r];
    if (site.head != head) bits = bits_of_head(call.dropout, run.task.batch, site.head);
    head = site.head;
    for (std::int64_t k = 0; k < keys; k += kPanel) {
      if (site.low >= step_key + k + kPanel || site.high <= step_key + k) continue;
      kept_weights(call.dropout, bits, site.index, run.task.key_begin + step_key + k, keep);
      float* weights = run.w.weights + r * kChunk + k;
      for (std::int64_t v = 0; v < kPanel; v += kLanes)
        store(weights + v, mul(load(weights + v), load(keep + v)));
    }
  }
}

/// One step (a chunk of keys, or a panel) for all rows of the task.
template <bool kPairs>
bool attend_step(Run& run, std::int64_t chunk_key) {
  const Chunk chunk = packed_chunk<kPairs>(run.call, run.task, run.w, chunk_key);
  if (!chunk.measured.keys.in_range) return false;
  // The packed keys carry scale * log2(e); 1.001 covers the rounding of the sums of squares.
  const float bound = 1.001f * __builtin_sqrtf(run.largest_query_square) *
                      __builtin_sqrtf(chunk.measured.keys.largest_square);
  if (!(bound <= kLargestScore / 2)) return false;
  if (!run.tracked && bound > kBoundedScore) start_tracking(run);

  for (std::int64_t row = 0; row < run.padded_rows; row += kBlockRows) {
    const std::int64_t rows = smaller(kBlockRows, run.padded_rows - row);
    if (!score_block(run, row, rows, chunk_key, chunk)) return false;
    offer_block(run, row, rows, chunk_key);
    if (!run.call.output.data) continue;
    drop_block(run, row, rows, chunk_key, chunk.count);
    if constexpr (kPairs)
      value_pairs_block<kPairs>(run, row, rows, chunk_key, chunk);
    else
      value_block(run, row, rows, chunk_key, chunk);
  }
  return true;
}

/// What does a step: reads keys and values in place where rows are few and theirs are whole vectors.
inline auto step_for(const Run& run) -> bool (*)(Run&, std::int64_t) {
  const Call& call = run.call;
  if (run.w.step == kChunk || call.dropout.threshold != 0 || !is_direct(call.key, call.head_dim) ||
      !is_direct(call.value, call.value_dim))
    return run.pairs ? attend_step<kHasPairs> : attend_step<false>;
  if (call.key.type == Type::f32) return attend_direct<Type::f32>;
  return call.key.type == Type::bf16 ? attend_direct<Type::bf16> : attend_direct<Type::f16>;
}

inline Outcome forward(const Call& call, const Tiling& tiling, const Task& task, void* workspace) {
  Run run = {call, task, lay_out(call, tiling, workspace), 0, 0, false, false, false, false, {}, 0};
  run.rows = task.head_count * (task.row_end - task.row_begin);
  run.padded_rows = round_up(run.rows, kTileRows);
  run.transforms = transforms_scores(call);
  run.pairs = kHasPairs && call.query.type == Type::bf16 && call.output.data &&
              call.output.type == Type::bf16 && run.w.step == kChunk && call.dropout.threshold == 0;
  const auto attend = step_for(run);
  const bool direct = attend != attend_step<false> && !run.pairs;
  run.tracked = run.transforms || direct;
  run.observed = call.entropy.data || call.max_score.data;
  start_rows(run);
  // Keys that are read in place do not carry the scale.
  run.largest_query_square = find_queries(run, direct ? call.scale : 1.0f);
  if (run.largest_query_square < 0) return Outcome::out_of_range;

  std::int64_t low = INT64_MAX;
  std::int64_t high = 0;
  for (std::int64_t r = 0; r < run.rows; ++r) {
    if (run.w.site[r].low >= run.w.site[r].high) continue;
    low = smaller(low, run.w.site[r].low);
    high = larger(high, run.w.site[r].high);
  }
  const std::int64_t step = run.w.step;
  for (std::int64_t key = low == INT64_MAX ? high : low / step * step; key < high; key += step) {
    if (!attend(run, key)) return Outcome::out_of_range;
    if (step < kChunk && ((key + step) % kChunk == 0 || key + step >= high)) add_partial(run);
  }
  return finish_rows(run) ? Outcome::done : Outcome::out_of_range;
}

}  // namespace heed::detail::HEED_ISA
