// Products of few query rows with keys and values that are read in place, a panel at a time.
#pragma once

#include "attention/kernels/decode/decode_rows.hpp"
#include "attention/kernels/decode/pass_prefetch.hpp"
#include "attention/kernels/softmax/workspace.hpp"

namespace heed::detail::HEED_ISA {

inline constexpr bool kPrefetchesLines = kLanes == 16;  // a vector of f32 is a line

/// scores [kRows] [done, done + count) of kRows queries with keys [count], read in place. kLanes / kRows keys
/// are processed at a time. Each query and key have their own accumulator, and a transposition sums the
/// lanes. So a score does not depend on what is computed beside it. Returns false if a score is not finite,
/// or larger than weights can be computed from; a partial sum that overflowed makes it not finite.
template <class Format, int kRows, class Rows>
bool decode_scores(const Rows& keys, std::int64_t count, const DecodeQueries& queries,
                   float (&scores)[kTileRows][kPanel], std::int64_t done, PassPrefetch& prefetch) {
  const float *query = queries.rows, *offset = queries.offset;
  const std::int64_t ldq = queries.stride, depth = queries.depth;
  constexpr int kKeys = kLanes / kRows;
  // Memory is faster if few rows are read side by side. Sums of pairs need more of them.
  constexpr int kTogether = !kPrefetchesLines ? kKeys : kKeys < 2 * Rows::kParts ? kKeys : 2 * Rows::kParts;
  std::uint32_t in_range = kAllLanes;
  // Addresses are computed first. The products leave too few registers for that.
  typename Rows::Row from[kPanel + kLanes];
  for (std::int64_t k = 0; k < round_up(count, kKeys); ++k) from[k] = keys.row(smaller(k, count - 1));
  alignas(64) float offsets[kLanes];
  for (int i = 0; i < kLanes; ++i) offsets[i] = offset != nullptr ? offset[i / kKeys] : 0;
  for (std::int64_t k = 0; k < count; k += kKeys) {
    Vf acc[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) acc[i] = zero();
    [[maybe_unused]] const char* ahead[std::size_t{kKeys}];
#pragma GCC unroll 16
    for (int i = 0; i < kKeys; ++i) {
      if constexpr (kPrefetchesLines)
        ahead[i] = prefetch.beside(query);
      else
        prefetch.fetch();
    }
#pragma GCC unroll 16
    for (int first = 0; first < kKeys; first += kTogether)
      for (std::int64_t d = 0; d < depth; d += Format::kElements * Rows::kParts * kLanes) {
        const float* q = query + d / Format::kElements;
#pragma GCC unroll 16
        for (int i = first; i < first + kTogether; ++i) {
          Vf x[std::size_t{Rows::kParts}];
          keys.load(from[k + i], keys.column(d), x);
          if constexpr (kPrefetchesLines) __builtin_prefetch(ahead[i] + d * Rows::kBits / 8, 0, 2);
#pragma GCC unroll 4
          for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
            for (int part = 0; part < Rows::kParts; ++part)
              acc[r * kKeys + i] =
                  Format::multiply_add(x[part], load(q + r * ldq + part * kLanes), acc[r * kKeys + i]);
        }
      }
    const Vf product = sum_each(acc);
    const Vf score = mul(offset != nullptr ? add(product, load(offsets)) : product, splat(queries.scale));
    in_range &= bits_of(greater_equal(splat(kMaxScore), absolute(score)));
    alignas(64) float lane[kLanes];
    store(lane, score);
    if (done + k + kKeys <= kPanel) {
      for (int r = 0; r < kRows; ++r)
        __builtin_memcpy(scores[r] + done + k, lane + r * kKeys, kKeys * sizeof(float));
    } else {
      for (int r = 0; r < kRows; ++r)
        for (std::int64_t i = 0; i < kKeys && done + k + i < kPanel; ++i)
          scores[r][done + k + i] = lane[r * kKeys + i];
    }
  }
  return in_range == kAllLanes;
}

/// The queries of a task from `row` on, in its own format.
inline DecodeQueries decode_queries(const TaskState& state, std::int64_t row) {
  const QueryRows& queries = state.queries;
  return {queries.data + row * queries.stride, queries.stride, state.w.depth, state.call.log2_scale};
}

/// decode_scores() for any number of rows from 1 to kTileRows.
template <class Format, class Rows>
auto decode_scores_of(std::int64_t rows) {
  return rows == 1   ? decode_scores<Format, 1, Rows>
         : rows == 2 ? decode_scores<Format, 2, Rows>
                     : decode_scores<Format, kTileRows, Rows>;
}

/// Loads kParts vectors as PairRows has them, or as they are; and stores them.
template <int kParts>
HEED_INLINE void load_parts(const float* from, Vf* to) {
  if constexpr (kParts == 2)
    split_pairs(load(from), load(from + kLanes), to[0], to[1]);
  else
    to[0] = load(from);
}
template <int kParts>
HEED_INLINE void store_parts(float* to, const Vf* from) {
  if constexpr (kParts == 2) {
    Vf a, b;
    join_pairs(from[0], from[1], a, b);
    store(to, a);
    store(to + kLanes, b);
  } else {
    store(to, from[0]);
  }
}

/// Prefetches a line after the loads from `row` before it and before those after it. The compiler would
/// gather prefetches, and loads wait for a burst of them.
HEED_INLINE void prefetch_in_turn(std::int64_t& row, const char*& ahead, std::int64_t byte) {
  asm("" : "+r"(row), "+r"(ahead));
  __builtin_prefetch(ahead + byte, 0, 2);
  asm("" : "+r"(row), "+r"(ahead));
}

/// Adds weights [kRows][kKvBlock] x values [count] to output [kRows][ldo], one value after the other. The
/// values are kVectors vectors wide from `column` on, and are read in place.
template <int kRows, int kVectors, class Rows>
void decode_values(const Rows& values, std::int64_t column, std::int64_t count, const float* weights,
                   float* output, std::int64_t ldo, PassPrefetch prefetch) {
  Vf acc[static_cast<std::size_t>(kRows)][static_cast<std::size_t>(kVectors)];
  typename Rows::Column columns[static_cast<std::size_t>(kVectors)];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) columns[v] = values.column(column + v * kLanes);
  constexpr int kParts = Rows::kParts;
  constexpr bool kByLines = kPrefetchesLines && kVectors >= 4 * kParts && Rows::kBits > 0;
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; v += kParts) load_parts<kParts>(output + r * ldo + v * kLanes, &acc[r][v]);
  for (std::int64_t k = 0; k < count; ++k) {
    Vf weight[static_cast<std::size_t>(kRows)];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) weight[r] = splat(weights[r * kKvBlock + k]);
    typename Rows::Row row = values.row(k);
    [[maybe_unused]] const char* ahead = kByLines ? prefetch.beside(weights) : nullptr;
    if constexpr (!kByLines) prefetch.fetch();
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; v += kParts) {
      Vf x[std::size_t{kParts}];
      values.load(row, columns[v], x);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
        for (int part = 0; part < kParts; ++part)
          acc[r][v + part] = mul_add(weight[r], x[part], acc[r][v + part]);
      if constexpr (kByLines) prefetch_in_turn(row, ahead, v * kLanes * Rows::kBits / 8);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; v += kParts) store_parts<kParts>(output + r * ldo + v * kLanes, &acc[r][v]);
}

template <int kRows, class Rows>
auto decode_values_of(std::int64_t vectors) {
  constexpr int kWide = Rows::template kVectors<kRows>;
  return vectors >= kWide && kWide >= 4 ? decode_values<kRows, kWide, Rows>
         : vectors >= 4 && kWide > 4    ? decode_values<kRows, 4, Rows>
         : vectors >= 2                 ? decode_values<kRows, 2, Rows>
                                        : decode_values<kRows, Rows::kParts, Rows>;
}

/// KV blocks whose keys are read before their values, or block by block (by_phases), limited to keys that
/// some row may see.
struct DecodeBlock {
  std::int64_t key;    // the first key, within the segment
  std::int64_t count;  // number of keys
  StreamPrefetch keys, values;
};

/// Whether KV blocks of numbers are read by phases: while the keys of a KV block are read, its values are
/// prefetched, and with its values the keys of the next one. A KV block takes at most half of the
/// second-level cache. One row and two are read faster in order, with prefetches a fixed distance ahead.
/// Tasks side by side, which share memory, prefetch that way too, but have the order of phases, and so the
/// same bits.
inline bool reads_by_phases(const TaskContext& context) {
  constexpr std::int64_t kPhasesBytes = 512 << 10;
  const Arguments& call = context.call;
  const KvSource& kv = context.kv;
  return call.ahead.by_phases && context.rows > 2 && kv.codes == nullptr && call.output.data != nullptr &&
         kKvBlock * (kv.keys.bytes_of(context.w.depth) + kv.values.bytes_of(call.value_dim)) <= kPhasesBytes;
}

inline DecodeBlock decode_block(const TaskContext& context, std::int64_t key, std::int64_t end,
                                bool by_phases) {
  const std::int64_t count = smaller(kDecodeKvBlocks * kKvBlock, smaller(context.w.group[0].end, end) - key);
  const KvSource& kv = context.kv;
  const cpu::ReadAhead& ahead = context.call.ahead;
  const std::int64_t depth = context.w.depth, value_dim = context.call.value_dim;
  const RowBlock keys = {kv.keys, key, count, depth}, values = {kv.values, key, count, value_dim};
  const RowPrefetch next_keys = {kv.keys, key + count, depth}, next_values = {kv.values, key, value_dim};
  if (by_phases)
    return {key, count, phase_prefetch(values, {kv.values, key + count, value_dim}, 0),
            phase_prefetch(keys, next_keys, kKvBlock)};
  return {key, count, stream_prefetch(ahead, keys, next_values), stream_prefetch(ahead, values, next_keys)};
}

/// The part of a KV block of `block`: its keys [begin, end), counted from the block's first key.
inline KeyRange decode_kv_block(const TaskContext& context, const DecodeBlock& block, std::int64_t kv_block) {
  const std::int64_t low = larger(0, context.w.group[0].begin - block.key) / kPanel * kPanel;
  return {larger(low, kv_block * kKvBlock), smaller(block.count, (kv_block + 1) * kKvBlock)};
}

/// Rows of a panel, converted to floats because some of them are no codes.
inline FloatRows<DType::f32> mixed_rows(const TaskContext& state, bool are_keys, std::int64_t first,
                                        std::int64_t count) {
  return {even_rows(state, are_keys, first, count).rows, first};
}

/// Number of column panels that `vectors` vectors make, each at most `wide` vectors.
inline std::int64_t panels_of(std::int64_t vectors, std::int64_t wide) {
  const std::int64_t rest = vectors % wide;
  return vectors / wide + (wide > 4 && rest >= 4 ? 1 + (rest % 4 + 1) / 2 : (rest + 1) / 2);
}

/// Adds the weights of kRows rows from `row` on, for keys `panel` of the block, times their values.
template <int kRows, class Rows>
void add_values_of_rows(const TaskState& state, const Rows& values, const DecodeBlock& block,
                        const KeyRange& panel, const float* weights, std::int64_t row,
                        std::int64_t row_passes) {
  const Workspace& w = state.w;
  constexpr std::int64_t kWide = Rows::template kVectors<kRows>;
  const std::int64_t vectors = w.value_columns / kLanes;
  const std::int64_t panels = panels_of(vectors, kWide);
  const std::int64_t count = panel.end - panel.begin;
  std::int64_t pass = row / Rows::kValueRows * panels;
  for (std::int64_t v = 0; v < vectors; ++pass) {
    const std::int64_t left = vectors - v;
    const std::int64_t here = left >= kWide ? kWide : left >= 4 && kWide > 4 ? 4 : left >= 2 ? 2 : 1;
    PassPrefetch prefetch{block.values, panel.begin, count, pass, row_passes * panels};
    if (panels > 1) prefetch.rows_at_once();
    decode_values_of<kRows, Rows>(here)(
        values, v * kLanes, count, weights + row * kKvBlock + panel.begin % kKvBlock,
        w.partial + row * w.value_columns + v * kLanes, w.value_columns, prefetch);
    v += here;
  }
}

/// The same for all rows.
template <class Rows>
void add_rows_of_values(const TaskState& state, const Rows& values, const DecodeBlock& block,
                        const KeyRange& panel, const float* weights) {
  constexpr int kMax = Rows::kValueRows;
  const std::int64_t passes = (state.rows + kMax - 1) / kMax;
  for (std::int64_t row = 0; row < state.rows; row += kMax) {
    const std::int64_t here = smaller(kMax, state.rows - row);
    const auto add = here == 1   ? add_values_of_rows<1, Rows>
                     : here == 2 ? add_values_of_rows<2, Rows>
                                 : add_values_of_rows<kMax, Rows>;
    add(state, values, block, panel, weights, row, passes);
  }
}

}  // namespace heed::detail::HEED_ISA
