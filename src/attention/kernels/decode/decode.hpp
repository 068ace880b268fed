// Attention of few query rows, as in decoding. Every key is read once for a handful of products, so the
// memory bandwidth limits the speed. Keys and values are read in place and never packed. The keys of some KV
// blocks are read before their values, because memory is faster the longer it is read in order.
#pragma once

#include "attention/kernels/decode/decode_products.hpp"
#include "attention/kernels/softmax/epilogue.hpp"
#include "attention/kernels/softmax/softmax.hpp"
#include "attention/kernels/softmax/value_block.hpp"
#if defined(HEED_BYTE_DOTS)
#include "attention/kernels/decode/digit_blocks.hpp"
#else
#include "attention/kernels/decode/no_digits.hpp"
#endif

namespace heed::detail::HEED_ISA {

/// Computes scores of up to kTileRows rows from `row` on against a panel's keys, from key `first` of the
/// segment on.
template <DType kType, class Format, RowFormat kCodes>
bool decode_panel_scores(TaskState& state, std::int64_t row, std::int64_t first, std::int64_t count,
                         float (&scores)[kTileRows][kPanel], PassPrefetch prefetch) {
  const DecodeQueries queries = decode_queries(state, row);
  const auto multiply = [&]<class Rows>(const Rows& keys, std::int64_t here, std::int64_t done,
                                        const DecodeQueries& q) {
    return decode_scores_of<Format, Rows>(state.rows - row)(keys, here, q, scores, done, prefetch);
  };
  bool in_range = true;
  if (kCodes == RowFormat::floats && Format::kElements == 1 && are_pair_rows(kType, state.w.depth)) {
    in_range = multiply(PairRows{state.kv.keys, first}, count, 0, queries);
  } else if constexpr (kCodes == RowFormat::floats) {
    in_range = multiply(FloatRows<kType, Format>{state.kv.keys, first}, count, 0, queries);
  } else {
    const CodedRows rows = coded_rows_of(state, true);
    const std::int64_t coded = coded_keys(state, first, count);
    for (std::int64_t done = 0; done < coded;) {
      const std::int64_t here = keys_of_group(rows, first + done, first + coded);
      const DecodeQueries folded =
          folded_queries<kCodes>(state, rows, first + done, row, smaller(kTileRows, state.padded_rows - row));
      in_range = multiply(CodedKeys<kCodes>{state.kv.keys, first + done}, here, done, folded) && in_range;
      done += here;
    }
    if (coded < count)
      in_range =
          multiply(mixed_rows(state, true, first + coded, count - coded), count - coded, coded, queries) &&
          in_range;
  }
  for (int r = 0; r < kTileRows; ++r)
    for (std::int64_t k = r < state.rows - row ? count : 0; k < kPanel; ++k) scores[r][k] = 0;
  return in_range;
}

/// Computes the weights of all rows for a panel of `count` keys that begins at key `at` of the block.
/// `weights` belong to the panel's KV block.
template <DType kType, class Format, RowFormat kCodes>
void decode_panel_weights(TaskState& state, const DecodeBlock& block, std::int64_t at, std::int64_t count,
                          float* weights) {
  const std::int64_t done = at % kKvBlock;
  for (std::int64_t row = 0; row < state.padded_rows; row += kTileRows) {
    alignas(64) float scores[kTileRows][kPanel];
    const bool in_range = decode_panel_scores<kType, Format, kCodes>(
        state, row, block.key + at, count, scores,
        {block.keys, at, count, row / kTileRows, state.padded_rows / kTileRows});
    softmax_scores(state, row, block.key + at, scores, weights + row * kKvBlock + done, done, !in_range);
  }
  add_panel_statistics(state, 0, state.padded_rows, block.key + at, weights + done, count);
}

template <DType kType, RowFormat kCodes>
void add_decode_values(const TaskState& state, const DecodeBlock& block, const KeyRange& panel,
                       const float* weights) {
  const std::int64_t first = block.key + panel.begin, count = panel.end - panel.begin;
  if (kCodes == RowFormat::floats && are_pair_rows(kType, state.w.value_columns)) {
    add_rows_of_values(state, PairRows{state.kv.values, first}, block, panel, weights);
  } else if constexpr (kCodes == RowFormat::floats) {
    add_rows_of_values(state, FloatRows<kType>{state.kv.values, first}, block, panel, weights);
  } else if (reads_coded_values(state) && coded_keys(state, first, count) == count) {
    add_rows_of_values(state, coded_values_of<kCodes>(state, first, count), block, panel, weights);
  } else {
    add_rows_of_values(state, mixed_rows(state, false, first, count), block, panel, weights);
  }
}

/// Converts bf16 queries, which were packed as floats, back to pairs.
inline void pack_decode_pairs(const TaskState& state) {
  const Workspace& w = state.w;
  for (std::int64_t r = 0; r < state.padded_rows; ++r) {
    float* row = w.query + r * w.padded_depth;
    for (std::int64_t d = 0; d < w.depth; d += 2 * kLanes)
      store_bf16(reinterpret_cast<std::uint16_t*>(row) + d, load(row + d), load(row + d + kLanes));
  }
}

/// Orders queries, packed or in place, as PairRows orders keys.
inline void split_decode_queries(TaskState& state) {
  const Workspace& w = state.w;
  for (std::int64_t r = 0; r < state.padded_rows; ++r) {
    const float* from = state.queries.data + r * state.queries.stride;
    for (std::int64_t d = 0; d < w.depth; d += 2 * kLanes) {
      Vf even, odd;
      split_pairs(load(from + d), load(from + d + kLanes), even, odd);
      store(w.query + r * w.query_lanes + d, even);
      store(w.query + r * w.query_lanes + d + kLanes, odd);
    }
  }
  state.queries = {w.query, w.query_lanes};
}

/// Rescales the weights of a KV block from the shifts they were computed with, `shifts` [rows], to the
/// current ones.
inline void follow_shifts(const TaskState& state, const KeyRange& kv_block, const float* shifts,
                          float* weights) {
  for (std::int64_t r = 0; r < state.rows; ++r) {
    const float factor = factor_since(shifts[r], state.w.softmax.shift[r]);
    if (factor == 1) continue;
    scale_row(weights + r * kKvBlock + kv_block.begin % kKvBlock, kv_block.end - kv_block.begin, factor);
  }
}

/// Keeps the weights of a KV block, whose first key is `key`, for results that need the final sums.
inline void keep_weights(const TaskState& state, std::int64_t key, const KeyRange& kv_block,
                         const float* weights) {
  if (kv_block.begin >= kv_block.end) return;
  const cpu::KeptWeights& kept = state.call.kept;
  const Arguments& call = state.call;
  const std::int64_t begin = kv_block.begin % kKvBlock;
  const std::int64_t count = kv_block.end - kv_block.begin;
  for (std::int64_t r = 0; r < state.rows; ++r) {
    const QueryRow& query_row = state.w.query_row[r];
    const std::int64_t row =
        (state.task.batch * call.heads + query_row.head) * call.query_length + query_row.index;
    kept.shifts[row * kept.kv_blocks + key / kKvBlock] = state.w.softmax.shift[r];
    float* to = kept.weights + row * kept.keys + key;
    const float* from = weights + r * kKvBlock;
    for (std::int64_t k = 0; k < begin; ++k) to[k] = 0;
    std::int64_t k = begin;
    for (; k + kLanes <= begin + count; k += kLanes) store(to + k, load(from + k));
    for (; k < begin + count; ++k) to[k] = from[k];
    for (; k < kKvBlock; ++k) to[k] = 0;
  }
}

/// A task at a block of keys, with the shifts that its weights were computed with.
struct DecodeStep {
  DecodeBlock block;
  std::int64_t kv_blocks;
  bool by_phases;
  float shifts[kDecodeKvBlocks][kGroupRows];
};

inline float* decode_weights(const TaskState& state, std::int64_t kv_block) {
  return state.w.weights + kv_block * kGroupRows * kKvBlock;
}

template <DType kType, class Format, RowFormat kCodes, bool kDigits>
void decode_keys(TaskState& state, DecodeStep& step, std::int64_t c) {
  const DecodeBlock& block = step.block;
  const KeyRange kv_block = decode_kv_block(state, block, c);
  float* weights = decode_weights(state, c);
  if constexpr (kDigits)
    weights_by_digits<kCodes>(state, block, c * kKvBlock, kv_block, weights);
  else
    for (std::int64_t at = kv_block.begin; at < kv_block.end; at += kPanel)
      decode_panel_weights<kType, Format, kCodes>(state, block, at, smaller(kPanel, kv_block.end - at),
                                                  weights);
  const std::int64_t key = block.key + c * kKvBlock;
  insert_candidates(state, 0, state.padded_rows, weights, key);
  if (state.call.kept.weights != nullptr) keep_weights(state, key, kv_block, weights);
  for (std::int64_t r = 0; r < state.rows; ++r) step.shifts[c][r] = state.w.softmax.shift[r];
}

template <DType kType, RowFormat kCodes, bool kDigits>
void decode_values_of_block(const TaskState& state, const DecodeStep& step, std::int64_t c) {
  const KeyRange kv_block = decode_kv_block(state, step.block, c);
  float* weights = decode_weights(state, c);
  follow_shifts(state, kv_block, step.shifts[c], weights);
  if constexpr (kDigits)
    if (!state.kv.codes->codes.values_in_keys) {
      add_values_by_digits<kCodes>(state, step.block, c * kKvBlock, kv_block, weights);
      return add_partial(state);
    }
  // Values of earlier keys in the first panel, which no row sees, may be infinite. Codes are finite.
  const std::int64_t seen = kCodes == RowFormat::floats ? state.w.group[0].begin - step.block.key : 0;
  for (std::int64_t at = kv_block.begin; at < kv_block.end; at += kPanel) {
    const std::int64_t end = smaller(kv_block.end, at + kPanel), begin = larger(at, seen);
    if (begin < end) add_decode_values<kType, kCodes>(state, step.block, {begin, end}, weights);
  }
  add_partial(state);
}

/// Processes a block of keys from `key` on, before `end`, for all rows of each task; a task has at most
/// kGroupRows. First come the weights of its KV blocks, one below the other, and then their values; or both
/// KV block by KV block (reads_by_phases()). Tasks take turns at each KV block, so all but the first read it
/// from the second-level cache. kDigits: codes are multiplied as bytes.
template <DType kType, class Format, RowFormat kCodes = RowFormat::floats, bool kDigits = false>
void attend_decode(const TasksTogether& tasks, std::int64_t key, std::int64_t end) {
  DecodeStep steps[cpu::kTasksTogether];
  for (std::int64_t t = 0; t < tasks.count; ++t) {
    steps[t].by_phases = reads_by_phases(*tasks.of[t]);
    steps[t].block = decode_block(*tasks.of[t], key, end, steps[t].by_phases && tasks.count == 1);
    steps[t].kv_blocks = (steps[t].block.count + kKvBlock - 1) / kKvBlock;
  }
  for (std::int64_t c = 0; c < kDecodeKvBlocks; ++c)
    for (std::int64_t t = 0; t < tasks.count; ++t) {
      if (c >= steps[t].kv_blocks) continue;
      decode_keys<kType, Format, kCodes, kDigits>(*tasks.of[t], steps[t], c);
      if (steps[t].by_phases) decode_values_of_block<kType, kCodes, kDigits>(*tasks.of[t], steps[t], c);
    }
  if (!tasks.of[0]->call.output.data) return;
  for (std::int64_t c = 0; c < kDecodeKvBlocks; ++c)
    for (std::int64_t t = 0; t < tasks.count; ++t)
      if (c < steps[t].kv_blocks && !steps[t].by_phases)
        decode_values_of_block<kType, kCodes, kDigits>(*tasks.of[t], steps[t], c);
}

}  // namespace heed::detail::HEED_ISA
