// Attention of few query rows, as in decoding. Every key is read once for a handful of products, so the
// memory bandwidth limits the speed. Keys and values are read in place and never packed. The keys of some KV
// blocks are read before their values, because memory is faster the longer it is read in order.
#pragma once

#include "attention/kernels/decode/decode_rows.hpp"
#include "attention/kernels/softmax/epilogue.hpp"
#include "attention/kernels/softmax/softmax.hpp"
#include "attention/kernels/softmax/value_block.hpp"

namespace heed::detail::HEED_ISA {

/// The rows to be read next, in reading order: `count` rows of this tensor, then rows of the other. Reading a
/// row prefetches one further on, so that memory is never idle.
struct StreamPrefetch {
  HeadRows rows;
  std::int64_t first, bytes;  // the first row of the block; bytes per row
  std::int64_t count;
  std::int64_t ahead;
  bool to_first_cache;
  HeadRows next;  // the other tensor
  std::int64_t next_first, next_bytes;

  template <int kLocality>
  HEED_INLINE void fetch_row(std::int64_t at) const {
    const char* from =
        at < count ? rows.address_ahead(first + at) : next.address_ahead(next_first + at - count);
    const std::int64_t size = at < count ? bytes : next_bytes;
    for (std::int64_t byte = 0; byte < size; byte += 64) __builtin_prefetch(from + byte, 0, kLocality);
  }
};

/// The prefetches of one of `passes` passes over a panel of `keys` keys, which begins at row `panel` of the
/// stream. One or two passes wait for memory, so the first prefetches the row `ahead` rows further on. With
/// more passes, each prefetches its share of the next panel, which is then read from the second-level cache.
/// So memory works during all passes.
class PassPrefetch {
 public:
  PassPrefetch(const StreamPrefetch& stream, std::int64_t panel, std::int64_t keys, std::int64_t pass,
               std::int64_t passes)
      : stream_(stream) {
    if (passes <= 2) {
      interval_ = pass == 0 ? 1 : INT64_MAX;
      row_ = panel + stream.ahead;
    } else {
      shares_ = true;
      interval_ = passes;
      row_ = panel + keys + (pass * keys + passes - 1) / passes;
    }
    wait_ = interval_;
  }

  /// Call once per key.
  HEED_INLINE void fetch() {
    if (--wait_ > 0) return;
    wait_ = interval_;
    if (stream_.to_first_cache && !shares_)
      stream_.fetch_row<3>(row_++);
    else
      stream_.fetch_row<2>(row_++);
  }

 private:
  const StreamPrefetch& stream_;
  std::int64_t row_, interval_, wait_;
  bool shares_ = false;
};

inline std::int64_t rows_ahead(const cpu::ReadAhead& ahead, DType type, std::int64_t bytes) {
  return larger(1, smaller(kPanel, (type == DType::f32 ? ahead.bytes : ahead.bytes16) / bytes));
}

/// Describes `count` rows from `key` on, followed by rows of `next` from `next_key` on.
inline StreamPrefetch stream_prefetch(const cpu::ReadAhead& ahead, const HeadRows& rows, std::int64_t key,
                                      std::int64_t width, std::int64_t count, const HeadRows& next,
                                      std::int64_t next_key, std::int64_t next_width) {
  const std::int64_t bytes = rows.bytes_of(width);
  return {rows,
          key,
          bytes,
          count,
          rows_ahead(ahead, rows.tensor.dtype, bytes),
          ahead.to_first_cache,
          next,
          next_key,
          next.bytes_of(next_width)};
}

/// scores [kRows] [done, done + count) = `scale` times kRows queries [kRows][ldq] x keys [count], read in
/// place. kLanes / kRows keys are processed at a time. Each query and key have their own accumulator, and a
/// transposition sums the lanes. So a score does not depend on what is computed beside it. Queries have the
/// format that keys are read in. `offset` [kRows], if not null, is added to their products. Returns false if
/// a score is not finite, or larger than weights can be computed from; a partial sum that overflowed makes it
/// not finite.
template <class Format, int kRows, class Rows>
bool decode_scores(const Rows& keys, std::int64_t count, std::int64_t depth, float scale, const float* query,
                   std::int64_t ldq, const float* offset, float (&scores)[kTileRows][kPanel],
                   std::int64_t done, PassPrefetch& prefetch) {
  constexpr int kKeys = kLanes / kRows;
  constexpr auto kAll = static_cast<std::uint32_t>((std::uint64_t{1} << kLanes) - 1);
  std::uint32_t in_range = kAll;
  alignas(64) float offsets[kLanes];
  for (int i = 0; i < kLanes; ++i) offsets[i] = offset != nullptr ? offset[i / kKeys] : 0;
  for (std::int64_t k = 0; k < count; k += kKeys) {
    Vf acc[kLanes];
    typename Rows::Row from[static_cast<std::size_t>(kKeys)];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) acc[i] = zero();
#pragma GCC unroll 16
    for (int i = 0; i < kKeys; ++i) {
      from[i] = keys.row(smaller(k + i, count - 1));
      prefetch.fetch();
    }
    for (std::int64_t d = 0; d < depth; d += Format::kElements * Rows::kParts * kLanes) {
      const float* q = query + d / Format::kElements;
#pragma GCC unroll 16
      for (int i = 0; i < kKeys; ++i) {
        Vf x[std::size_t{Rows::kParts}];
        keys.load(from[i], keys.column(d), x);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
          for (int part = 0; part < Rows::kParts; ++part)
            acc[r * kKeys + i] =
                Format::multiply_add(x[part], load(q + r * ldq + part * kLanes), acc[r * kKeys + i]);
      }
    }
    const Vf product = sum_each(acc);
    const Vf score = mul(offset != nullptr ? add(product, load(offsets)) : product, splat(scale));
    in_range &= bits_of(greater_equal(splat(kMaxScore), absolute(score)));
    alignas(64) float lane[kLanes];
    store(lane, score);
    for (int r = 0; r < kRows; ++r)
      for (std::int64_t i = 0; i < kKeys && done + k + i < kPanel; ++i)
        scores[r][done + k + i] = lane[r * kKeys + i];
  }
  return in_range == kAll;
}

/// The same for any number of rows from 1 to kTileRows.
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

/// Adds weights [kRows][ldw] x values [count] to output [kRows][ldo], one value after the other. The values
/// are kVectors vectors wide from `column` on, and are read in place.
template <int kRows, int kVectors, class Rows>
void decode_values(const Rows& values, std::int64_t column, std::int64_t count, const float* weights,
                   std::int64_t ldw, float* output, std::int64_t ldo, PassPrefetch prefetch) {
  Vf acc[static_cast<std::size_t>(kRows)][static_cast<std::size_t>(kVectors)];
  typename Rows::Column columns[static_cast<std::size_t>(kVectors)];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) columns[v] = values.column(column + v * kLanes);
  constexpr int kParts = Rows::kParts;
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; v += kParts) load_parts<kParts>(output + r * ldo + v * kLanes, &acc[r][v]);
  for (std::int64_t k = 0; k < count; ++k) {
    Vf weight[static_cast<std::size_t>(kRows)];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) weight[r] = splat(weights[r * ldw + k]);
    const typename Rows::Row row = values.row(k);
    prefetch.fetch();
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; v += kParts) {
      Vf x[std::size_t{kParts}];
      values.load(row, columns[v], x);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
        for (int part = 0; part < kParts; ++part)
          acc[r][v + part] = mul_add(weight[r], x[part], acc[r][v + part]);
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

/// KV blocks whose keys are read before their values, limited to keys that some row may see.
struct DecodeBlock {
  std::int64_t key;    // the first key, within the segment
  std::int64_t count;  // number of keys
  StreamPrefetch keys, values;
};

inline DecodeBlock decode_block(const TaskContext& context, std::int64_t key, std::int64_t end) {
  const std::int64_t count = smaller(kDecodeKvBlocks * kKvBlock, smaller(context.w.group[0].end, end) - key);
  const KvSource& kv = context.kv;
  const std::int64_t depth = context.w.depth;
  const std::int64_t value_dim = context.call.value_dim;
  return {key, count,
          stream_prefetch(context.call.ahead, kv.keys, key, depth, count, kv.values, key, value_dim),
          stream_prefetch(context.call.ahead, kv.values, key, value_dim, count, kv.keys, key + count, depth)};
}

/// The part of a KV block of `block`: its keys [begin, end), counted from the block's first key.
inline KeyRange decode_kv_block(const TaskContext& context, const DecodeBlock& block, std::int64_t kv_block) {
  const std::int64_t low = larger(0, context.w.group[0].begin - block.key) / kPanel * kPanel;
  return {larger(low, kv_block * kKvBlock), smaller(block.count, (kv_block + 1) * kKvBlock)};
}

/// Rows of a panel, converted to floats because some of them are no codes.
inline FloatRows<DType::f32> mixed_rows(const TaskContext& state, bool are_keys, std::int64_t first,
                                        std::int64_t count) {
  const std::int64_t width = are_keys ? state.w.depth : state.call.value_dim;
  return {even_rows(state.call, state.task, state.kv, are_keys, first, count, width, state.w.cached), first};
}

/// Computes scores of up to kTileRows rows from `row` on against a panel's keys, from key `first` of the
/// segment on.
template <DType kType, class Format, RowFormat kCodes>
bool decode_panel_scores(TaskState& state, std::int64_t row, std::int64_t first, std::int64_t count,
                         float (&scores)[kTileRows][kPanel], PassPrefetch prefetch) {
  const QueryRows queries = {state.queries.data + row * state.queries.stride, state.queries.stride};
  const auto multiply = [&]<class Rows>(const Rows& keys, std::int64_t here, std::int64_t done,
                                        const QueryRows& q, const float* offset) {
    return decode_scores_of<Format, Rows>(state.rows - row)(keys, here, state.w.depth, state.call.log2_scale,
                                                            q.data, q.stride, offset, scores, done, prefetch);
  };
  bool in_range = true;
  if (kCodes == RowFormat::floats && Format::kElements == 1 && are_pair_rows(kType, state.w.depth)) {
    in_range = multiply(PairRows{state.kv.keys, first}, count, 0, queries, nullptr);
  } else if constexpr (kCodes == RowFormat::floats) {
    in_range = multiply(FloatRows<kType, Format>{state.kv.keys, first}, count, 0, queries, nullptr);
  } else if (are_codes(state, first, count)) {
    const CodedRows rows = coded_rows_of(state, true);
    for (std::int64_t done = 0; done < count;) {
      const std::int64_t here = keys_of_group(rows, first + done, first + count);
      const FoldedQueries folded =
          folded_queries<kCodes>(state, rows, first + done, row, smaller(kTileRows, state.padded_rows - row));
      in_range = multiply(CodedKeys<kCodes>{state.kv.keys, first + done}, here, done,
                          {folded.rows, state.w.padded_depth}, folded.offset) &&
                 in_range;
      done += here;
    }
  } else {
    in_range = multiply(mixed_rows(state, true, first, count), count, 0, queries, nullptr);
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

/// Number of column panels that `vectors` vectors make, each at most `wide` vectors.
inline std::int64_t panels_of(std::int64_t vectors, std::int64_t wide) {
  const std::int64_t rest = vectors % wide;
  return vectors / wide + (wide > 4 && rest >= 4 ? 1 + (rest % 4 + 1) / 2 : (rest + 1) / 2);
}

/// Adds the weights of kRows rows from `row` on, for a panel, times its values.
template <int kRows, class Rows>
void add_values_of_rows(const TaskState& state, const Rows& values, const DecodeBlock& block, std::int64_t at,
                        std::int64_t count, const float* weights, std::int64_t row, std::int64_t row_passes) {
  const Workspace& w = state.w;
  constexpr std::int64_t kWide = Rows::template kVectors<kRows>;
  const std::int64_t vectors = w.value_columns / kLanes;
  const std::int64_t panels = panels_of(vectors, kWide);
  std::int64_t pass = row / Rows::kValueRows * panels;
  for (std::int64_t v = 0; v < vectors; ++pass) {
    const std::int64_t left = vectors - v;
    const std::int64_t here = left >= kWide ? kWide : left >= 4 && kWide > 4 ? 4 : left >= 2 ? 2 : 1;
    decode_values_of<kRows, Rows>(here)(values, v * kLanes, count, weights + row * kKvBlock + at % kKvBlock,
                                        kKvBlock, w.partial + row * w.value_columns + v * kLanes,
                                        w.value_columns,
                                        {block.values, at, count, pass, row_passes * panels});
    v += here;
  }
}

/// Adds the weights of all rows for a panel times its values.
template <class Rows>
void add_rows_of_values(const TaskState& state, const Rows& values, const DecodeBlock& block, std::int64_t at,
                        std::int64_t count, const float* weights) {
  constexpr int kMax = Rows::kValueRows;
  const std::int64_t passes = (state.rows + kMax - 1) / kMax;
  for (std::int64_t row = 0; row < state.rows; row += kMax) {
    const std::int64_t here = smaller(kMax, state.rows - row);
    const auto add = here == 1   ? add_values_of_rows<1, Rows>
                     : here == 2 ? add_values_of_rows<2, Rows>
                                 : add_values_of_rows<kMax, Rows>;
    add(state, values, block, at, count, weights, row, passes);
  }
}

template <DType kType, RowFormat kCodes>
void add_decode_values(const TaskState& state, const DecodeBlock& block, std::int64_t at, std::int64_t count,
                       const float* weights) {
  const std::int64_t first = block.key + at;
  if (kCodes == RowFormat::floats && are_pair_rows(kType, state.w.value_columns)) {
    add_rows_of_values(state, PairRows{state.kv.values, first}, block, at, count, weights);
  } else if constexpr (kCodes == RowFormat::floats) {
    add_rows_of_values(state, FloatRows<kType>{state.kv.values, first}, block, at, count, weights);
  } else if (are_codes(state, first, count)) {
    add_rows_of_values(state, coded_values_of<kCodes>(state, first, count), block, at, count, weights);
  } else {
    add_rows_of_values(state, mixed_rows(state, false, first, count), block, at, count, weights);
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
    const float step = shifts[r] - state.w.softmax.shift[r];
    if (step == 0) continue;
    scale_row(weights + r * kKvBlock + kv_block.begin % kKvBlock, kv_block.end - kv_block.begin,
              power_of(step));
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
  float shifts[kDecodeKvBlocks][kGroupRows];
};

inline float* decode_weights(const TaskState& state, std::int64_t kv_block) {
  return state.w.weights + kv_block * kGroupRows * kKvBlock;
}

template <DType kType, class Format, RowFormat kCodes>
void decode_keys(TaskState& state, DecodeStep& step, std::int64_t c) {
  const DecodeBlock& block = step.block;
  const KeyRange kv_block = decode_kv_block(state, block, c);
  float* weights = decode_weights(state, c);
  for (std::int64_t at = kv_block.begin; at < kv_block.end; at += kPanel)
    decode_panel_weights<kType, Format, kCodes>(state, block, at, smaller(kPanel, kv_block.end - at),
                                                weights);
  const std::int64_t key = block.key + c * kKvBlock;
  insert_candidates(state, 0, state.padded_rows, weights, key);
  if (state.call.kept.weights != nullptr) keep_weights(state, key, kv_block, weights);
  for (std::int64_t r = 0; r < state.rows; ++r) step.shifts[c][r] = state.w.softmax.shift[r];
}

template <DType kType, RowFormat kCodes>
void decode_values_of_block(const TaskState& state, const DecodeStep& step, std::int64_t c) {
  const KeyRange kv_block = decode_kv_block(state, step.block, c);
  float* weights = decode_weights(state, c);
  follow_shifts(state, kv_block, step.shifts[c], weights);
  // Values of earlier keys in the first panel, which no row sees, may be infinite. Codes are finite.
  const std::int64_t seen = kCodes == RowFormat::floats ? state.w.group[0].begin - step.block.key : 0;
  for (std::int64_t at = kv_block.begin; at < kv_block.end; at += kPanel) {
    const std::int64_t end = smaller(kv_block.end, at + kPanel), begin = larger(at, seen);
    if (begin < end) add_decode_values<kType, kCodes>(state, step.block, begin, end - begin, weights);
  }
  add_partial(state);
}

/// Processes a block of keys from `key` on, before `end`, for all rows of each task; a task has at most
/// kGroupRows. First come the weights of its KV blocks, one below the other, and then their values. Tasks
/// take turns at each KV block, so all but the first read it from the second-level cache.
template <DType kType, class Format, RowFormat kCodes = RowFormat::floats>
void attend_decode(const TasksTogether& tasks, std::int64_t key, std::int64_t end) {
  DecodeStep steps[cpu::kTasksTogether];
  for (std::int64_t t = 0; t < tasks.count; ++t) {
    steps[t].block = decode_block(*tasks.of[t], key, end);
    steps[t].kv_blocks = (steps[t].block.count + kKvBlock - 1) / kKvBlock;
  }
  for (std::int64_t c = 0; c < kDecodeKvBlocks; ++c)
    for (std::int64_t t = 0; t < tasks.count; ++t)
      if (c < steps[t].kv_blocks) decode_keys<kType, Format, kCodes>(*tasks.of[t], steps[t], c);
  if (!tasks.of[0]->call.output.data) return;
  for (std::int64_t c = 0; c < kDecodeKvBlocks; ++c)
    for (std::int64_t t = 0; t < tasks.count; ++t)
      if (c < steps[t].kv_blocks) decode_values_of_block<kType, kCodes>(*tasks.of[t], steps[t], c);
}

}  // namespace heed::detail::HEED_ISA
