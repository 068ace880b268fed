// Weights times values: a block of rows and a chunk of keys into the output.
#pragma once

#include "attention/cpu/dropout.hpp"
#include "attention/cpu/work.hpp"

namespace heed::detail::HEED_ISA {

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
  count_path(call.paths, Path::dropped);
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

}  // namespace heed::detail::HEED_ISA
