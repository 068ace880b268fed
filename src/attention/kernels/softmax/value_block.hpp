// Weights times values: adds a block of rows and a KV block to the output.
#pragma once

#include "attention/kernels/shared/dropout.hpp"
#include "attention/kernels/softmax/workspace.hpp"

namespace heed::detail::HEED_ISA {

/// Multiplies one group (or the rest of one: 4 or 8 rows) with one column panel of values.
template <class Format, int kVectors, bool kContinue>
void group_values(std::int64_t rows, const float* weights, const float* values, std::int64_t ldv,
                  std::int64_t keys, float* output, std::int64_t ldo) {
  constexpr int kTall = kVectors <= (kRegisters >= 32 ? 2 : 1) ? kGroupRows : kValueRows;
  constexpr std::int64_t kLd = kKvBlock / Format::kElements;
  std::int64_t r = 0;
  if (rows == kGroupRows)
    for (; r < rows; r += kTall)
      value_tile<Format, kTall, kVectors, kContinue>(weights + r * kLd, kLd, values, ldv, keys,
                                                     output + r * ldo, ldo);
  for (; r < rows; r += kTileRows)
    value_tile<Format, kTileRows, kVectors, kContinue>(weights + r * kLd, kLd, values, ldv, keys,
                                                       output + r * ldo, ldo);
}

template <class Format, bool kContinue>
auto group_values_of(std::int64_t vectors) {
  return vectors == 1   ? group_values<Format, 1, kContinue>
         : vectors == 2 ? group_values<Format, 2, kContinue>
         : vectors == 3 ? group_values<Format, 3, kContinue>
                        : group_values<Format, 4, kContinue>;
}

/// Rounds a row's weights `from` [kKvBlock] of keys [begin, end) to pairs of neighbouring keys, and adds them
/// to the sum of rounded weights. The output is divided by that sum. It is then a mean by slightly wrong
/// weights, not a wrong sum. A key has its lane of the sum whichever keys are left out, so the bits do not
/// depend on the rows beside it.
inline void round_weights(const TaskState& state, std::int64_t row, const float* from, const KeyRange& keys,
                          float* to) {
  float* rounded = state.w.softmax.rounded + row * kLanes;
  Vf sum = load(rounded);
  for (std::int64_t k = keys.begin / (2 * kLanes) * (2 * kLanes); k < keys.end; k += 2 * kLanes) {
    const Vf low = k >= keys.begin ? load(from + k) : zero();
    const Vf high = k + kLanes < keys.end ? load(from + k + kLanes) : zero();
    sum = dot_bf16(store_bf16(reinterpret_cast<std::uint16_t*>(to) + k, low, high), pairs_of_one(), sum);
  }
  store(rounded, sum);
}

/// Adds weights x values of a block and one KV block to the output. The weights of a group are first rounded.
template <class Format>
void rounded_value_block(TaskState& state, std::int64_t row, std::int64_t rows, std::int64_t key,
                         const KvBlock& kv_block) {
  const Workspace& w = state.w;
  const std::int64_t vectors = w.value_columns / kLanes;
  const std::int64_t kv_block_pairs = (kv_block.count + 1) / 2;
  for (std::int64_t r = 0; r < rows; r += kGroupRows) {
    const RowGroup& group = w.group[(row + r) / kGroupRows];
    const std::int64_t group_rows = smaller(kGroupRows, rows - r);
    const std::int64_t begin = larger(0, group.begin - key) / kPanel * kPanel;
    const std::int64_t end = smaller(kv_block.count, group.end - key);
    if (begin >= end) continue;
    // A panel's weights beyond its keys are 0, so whole vectors can be rounded.
    for (std::int64_t i = 0; i < group_rows; ++i)
      round_weights(state, row + r + i, state.weights + (r + i) * kKvBlock, {begin, end},
                    w.weight_parts + i * (kKvBlock / 2));
    for (std::int64_t first = 0; first < vectors; first += kValueVectors) {
      const std::int64_t here = smaller(kValueVectors, vectors - first);
      const float* values = kv_block.values + (first * kv_block_pairs + begin / 2 * here) * kLanes;
      group_values_of<Format, false>(here)(
          group_rows, w.weight_parts + begin / 2, values, here * kLanes, (end - begin + 1) / 2,
          w.softmax.output + (row + r) * w.value_columns + first * kLanes, w.value_columns);
    }
  }
}

/// Adds weights x values of a block and one step to the output. If the step is less than a KV block, adds
/// them to the KV block's partial sums instead.
template <class Format>
void value_block(TaskState& state, std::int64_t row, std::int64_t rows, std::int64_t key,
                 const KvBlock& kv_block) {
  const Workspace& w = state.w;
  const bool whole = w.step == kKvBlock;
  const std::int64_t vectors = w.value_columns / kLanes;
  for (std::int64_t first = 0; first < vectors; first += kValueVectors) {
    const std::int64_t here = smaller(kValueVectors, vectors - first);
    const auto multiply = whole ? group_values_of<Format, false>(here) : group_values_of<Format, true>(here);
    const float* values = kv_block.panel(first * kLanes);
    const std::int64_t ldv = kv_block.stride(here);
    for (std::int64_t r = 0; r < rows; r += kGroupRows) {
      const RowGroup& group = w.group[(row + r) / kGroupRows];
      // Weights of earlier keys in the panel are 0, but their values, which no row sees, may be infinite.
      const std::int64_t begin = larger(0, group.begin - key);
      const std::int64_t end = smaller(kv_block.count, group.end - key);
      if (begin >= end) continue;
      kv_block.next_values.from(first / kValueVectors * state.padded_rows).fetch(row + r, kGroupRows);
      multiply(smaller(kGroupRows, rows - r), state.weights + r * kKvBlock + begin, values + begin * ldv, ldv,
               end - begin,
               (whole ? w.softmax.output : w.partial) + (row + r) * w.value_columns + first * kLanes,
               w.value_columns);
    }
  }
}

/// Ends a KV block that was processed in steps. Adds its partial sums to the output, so the order of
/// additions is the same as for a KV block processed at once.
inline void add_partial(const TaskState& state) {
  const Workspace& w = state.w;
  for (std::int64_t i = 0; i < state.padded_rows * w.softmax.value_columns; i += kLanes) {
    store(w.softmax.output + i, add(load(w.softmax.output + i), load(w.partial + i)));
    store(w.partial + i, zero());
  }
}

/// Applies dropout to a block's weights of one step, after their sums and statistics were taken.
inline void drop_block(TaskState& state, std::int64_t row, std::int64_t rows, std::int64_t step_key,
                       std::int64_t keys) {
  const Arguments& call = state.call;
  if (call.dropout.threshold == 0) return;
  count_path(call.paths, Path::dropped);
  alignas(64) float keep[kPanel];
  std::int64_t head = -1;
  HeadBits bits{};
  for (std::int64_t r = 0; r < rows && row + r < state.rows; ++r) {
    const QueryRow& query_row = state.w.query_row[row + r];
    if (query_row.head != head) bits = bits_of_head(call.dropout, state.task.batch, query_row.head);
    head = query_row.head;
    for (std::int64_t k = 0; k < keys; k += kPanel) {
      if (query_row.key_begin >= step_key + k + kPanel || query_row.key_end <= step_key + k) continue;
      kept_weights(call.dropout, bits, query_row.index, state.task.key_begin + step_key + k, keep);
      float* weights = state.weights + r * kKvBlock + k;
      for (std::int64_t v = 0; v < kPanel; v += kLanes)
        store(weights + v, mul(load(weights + v), load(keep + v)));
    }
  }
}

}  // namespace heed::detail::HEED_ISA
