// The most attended keys of each row. While a KV block is scored, keys whose weight may enter their row's
// list are marked as bits (Rows::candidate_bits). After it the marked ones of kLanes rows are gathered by
// rising key, a column a row, and the columns' first, second, … entries are inserted into the lists of all
// these rows at once: a minimum and a maximum a level, whatever each row's weight is, with no guess for the
// processor to get wrong.
#pragma once

#include "attention/cpu/kernel/workspace.hpp"

namespace heed::detail::HEED_ISA {

/// Weights that count: a forbidden key has a weight of 0, and allowed ones that small are told apart in
/// complete_top.
inline constexpr float kLeastWeight = 0x1p-126f;
/// What weights must exceed to enter a list that has room: the largest float below kLeastWeight.
inline constexpr float kAnyWeight = kLeastWeight - 0x1p-149f;
inline constexpr float kNoWeight = -1.0f;  // of entries that are not there

// The candidate bits of kLanes rows and a KV block are read as words, some a row.
inline constexpr int kVectors = kKvBlock / kLanes;
inline constexpr int kCandidateBits = 8 * sizeof(CandidateBits);
inline constexpr int kRowWords = kVectors * kCandidateBits / 64;
inline constexpr int kCandidateWords = kLanes * kRowWords;
static_assert(kVectors * kCandidateBits % 64 == 0 && kCandidateWords % 8 == 0 && kCandidateWords < 64);
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

inline void clear(const CandidateColumns& columns, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) store(columns.weight + i * kLanes, splat(kNoWeight));
}

inline CandidateColumns lists_of(const Workspace& w, std::int64_t row) {
  const std::int64_t at = row / kLanes * w.levels * kLanes;
  return {w.lists.weight + at, w.lists.key + at};
}

inline void start_lists(const TaskState& state) {
  const Workspace& w = state.w;
  clear(w.lists, w.list_rows / kLanes * w.levels);
  clear(w.candidates, kKvBlock);
  for (std::int64_t r = 0; r < w.list_rows; ++r)
    w.rows.entry_threshold[r] = r < state.rows ? kAnyWeight : __builtin_inff();
  for (std::int64_t i = 0; i < w.list_rows * kVectors; ++i) w.candidate_bits[i] = 0;
}

/// The next tiles are of a panel that begins at key `done` of its KV block.
HEED_INLINE void point_at_candidates(TaskState& state, std::int64_t done) {
  if (state.call.top_k > 0) state.w.rows.candidate_bits = state.w.candidate_bits + done / kLanes;
}

inline void scale_list(const TaskState& state, std::int64_t row, float factor) {
  const Workspace& w = state.w;
  if (row >= state.rows) return;
  float* weights = lists_of(w, row).weight + row % kLanes;
  for (std::int64_t i = 0; i < w.levels; ++i)
    if (weights[i * kLanes] > 0) weights[i * kLanes] *= factor;
  const float last = weights[(state.call.top_k - 1) * kLanes];
  w.rows.entry_threshold[row] = last > kAnyWeight ? last : kAnyWeight;
}

/// Offers `count` entries of each column to the lists beside it, in their order. In a list the largest weight
/// comes first, and of equal ones the one that came first: an entry's place is where it exceeds what is
/// there, and from there on each one moves down. `moved` [count][kLanes]: what goes from some levels to the
/// next.
inline void insert(const CandidateColumns& lists, std::int64_t levels, const CandidateColumns& columns,
                   float* moved, std::int64_t count) {
  auto* list_keys = reinterpret_cast<float*>(lists.key);
  auto* column_keys = reinterpret_cast<float*>(columns.key);
  for (std::int64_t level = 0; level < levels; level += kLevelsAtOnce) {
    Vf weight[kLevelsAtOnce], key[kLevelsAtOnce];
#pragma GCC unroll 8
    for (int i = 0; i < kLevelsAtOnce; ++i) {
      weight[i] = load(lists.weight + (level + i) * kLanes);
      key[i] = load(list_keys + (level + i) * kLanes);
    }
    const bool last = level + kLevelsAtOnce == levels;
    for (std::int64_t at = 0; at < count * kLanes; at += kLanes) {
      const Vf entry = load(columns.weight + at);
      Vf x = level == 0 ? entry : load(moved + at);
      Vf x_key = load(column_keys + at);
#pragma GCC unroll 8
      for (int i = 0; i < kLevelsAtOnce; ++i) {
        const Vf here = weight[i];
        const Vf key_here = key[i];
        const Mask moves = greater(entry, here);
        weight[i] = maximum(x, here);
        key[i] = select(moves, x_key, key_here);
        x = minimum(x, here);
        x_key = select(moves, key_here, x_key);
      }
      if (last) continue;
      store(moved + at, x);
      store(column_keys + at, x_key);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kLevelsAtOnce; ++i) {
      store(lists.weight + (level + i) * kLanes, weight[i]);
      store(list_keys + (level + i) * kLanes, key[i]);
    }
  }
}

/// The same for weights alone, and lists that were empty: lane by lane the largest of `weights`, which are
/// used up.
inline void insert_weights(float* lists, std::int64_t levels, float* weights, std::int64_t count) {
  for (std::int64_t level = 0; level < levels; level += kLevelsAtOnce) {
    Vf list[kLevelsAtOnce];
#pragma GCC unroll 8
    for (int i = 0; i < kLevelsAtOnce; ++i) list[i] = zero();
    for (std::int64_t at = 0; at < count * kLanes; at += kLanes) {
      Vf x = load(weights + at);
#pragma GCC unroll 8
      for (int i = 0; i < kLevelsAtOnce; ++i) {
        const Vf here = list[i];
        list[i] = maximum(x, here);
        x = minimum(x, here);
      }
      store(weights + at, x);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kLevelsAtOnce; ++i) store(lists + (level + i) * kLanes, list[i]);
  }
}

/// largest [kPanelVectors]: of the candidates of a row, those of all panels that share a lane.
HEED_INLINE void largest_candidates(const CandidateBits* candidate_bits, const float* weights,
                                    Vf (&largest)[kPanelVectors]) {
#pragma GCC unroll 3
  for (int v = 0; v < kPanelVectors; ++v) largest[v] = zero();
  for (int first = 0; first < kVectors; first += kPanelVectors) {
#pragma GCC unroll 3
    for (int v = 0; v < kPanelVectors; ++v)  // a vector without candidates may never have been written
      if (candidate_bits[first + v] != 0)
        largest[v] = maximum(largest[v], load(weights + (first + v) * kLanes));
  }
}

/// Takes away candidates that cannot enter the lists of kLanes rows, for lists that have room and take all.
/// The k-th largest of kPanel maxima of some weights each is a lower bound of the k-th largest of all of
/// them.
inline void tighten(const TaskState& state, CandidateBits* candidate_bits, const float* weights) {
  const Workspace& w = state.w;
  Vf largest[kPanelVectors][kLanes];
  for (int r = 0; r < kLanes; ++r) {
    Vf row[kPanelVectors];
    largest_candidates(candidate_bits + r * kVectors, weights + r * kKvBlock, row);
#pragma GCC unroll 3
    for (int v = 0; v < kPanelVectors; ++v) largest[v][r] = row[v];
  }
#pragma GCC unroll 3
  for (int v = 0; v < kPanelVectors; ++v) {
    transpose(largest[v]);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) store(w.moved + (v * kLanes + i) * kLanes, largest[v][i]);
  }
  alignas(64) float best[(kPanel + kLevelsAtOnce) * kLanes];
  insert_weights(best, w.levels, w.moved, kPanel);
  // For a normal number x, x * (1 - 2^-24) is the float below it.
  alignas(64) float bound[kLanes];
  store(bound, mul(load(best + (state.call.top_k - 1) * kLanes), splat(1 - 0x1p-24f)));
  for (int r = 0; r < kLanes; ++r)
    for (int v = 0; v < kVectors; ++v) {
      const auto above = bits_of(greater(load(weights + r * kKvBlock + v * kLanes), splat(bound[r])));
      candidate_bits[r * kVectors + v] = static_cast<CandidateBits>(candidate_bits[r * kVectors + v] & above);
    }
}

/// Bit i: word i of the candidates of kLanes rows is not 0.
inline std::uint64_t words_with_candidates(const CandidateBits* candidate_bits) {
  std::uint64_t some = 0;
  for (int i = 0; i < kCandidateWords; i += 8)
    some |= bits_of_nonzero(reinterpret_cast<const std::uint64_t*>(candidate_bits) + i) << i;
  return some;
}

HEED_INLINE std::uint64_t candidate_word(const CandidateBits* candidate_bits, std::int64_t i) {
  std::uint64_t word;
  __builtin_memcpy(&word, candidate_bits + i * (64 / kCandidateBits), sizeof word);
  return word;
}

/// The row of each word.
struct RowsOfWords {
  std::uint8_t row[kCandidateWords + 1];
};
constexpr RowsOfWords rows_of_words() {
  RowsOfWords words = {};
  for (int i = 0; i <= kCandidateWords; ++i) words.row[i] = static_cast<std::uint8_t>(i / kRowWords);
  return words;
}
inline constexpr RowsOfWords kRowsOfWords = rows_of_words();

/// Gathers the candidates of kLanes rows into columns. Returns how many entries the longest column has.
/// `some`: words_with_candidates, `key`: the KV block's first.
inline std::int64_t gather(const Workspace& w, const CandidateBits* candidate_bits, std::uint64_t some,
                           const float* weights, std::int64_t key) {
  some |= std::uint64_t{1} << kCandidateWords;
  std::int64_t i = __builtin_ctzll(some);
  std::uint64_t word = candidate_word(candidate_bits, i);
  some &= some - 1;
  std::int64_t row = kRowsOfWords.row[i];
  std::int64_t to = row;
  std::int64_t most = 0;
  while (i != kCandidateWords) {
    const std::int64_t bit = i * 64 + __builtin_ctzll(word);
    const std::int64_t from =
        kCandidateBits == kLanes ? bit : bit / kCandidateBits * kLanes + bit % kCandidateBits;
    w.candidates.weight[to] = weights[from];
    w.candidates.key[to] = static_cast<std::int32_t>(key + from - row * kKvBlock);
    most = larger(most, to);
    // On to the next word where this was the last of its candidates: by masks, for a branch would be a guess.
    const std::uint64_t rest = word & (word - 1);
    const std::uint64_t more = 0 - static_cast<std::uint64_t>(rest != 0);
    const std::int64_t next = __builtin_ctzll(some);
    const std::uint64_t next_word = candidate_word(candidate_bits, next);
    word = next_word ^ ((next_word ^ rest) & more);
    some &= (some - 1) | more;
    i = next ^ ((i ^ next) & static_cast<std::int64_t>(more));
    const std::int64_t next_row = kRowsOfWords.row[i];
    to = next_row + ((to + kLanes - next_row) & ((next_row - row - 1) >> 63));
    row = next_row;
  }
  return most / kLanes + 1;
}

/// After a KV block: what was marked of kLanes rows, of which the first `real` have lists, goes into them.
inline void insert_candidates_of_rows(const TaskState& state, std::int64_t row, std::int64_t real,
                                      const float* weights, std::int64_t kv_block_key) {
  const Workspace& w = state.w;
  CandidateBits* candidate_bits = w.candidate_bits + row * kVectors;
  std::uint64_t some = words_with_candidates(candidate_bits);
  if (some == 0) return;
  float* entry = w.rows.entry_threshold + row;
  if (any(greater_equal(splat(kAnyWeight), load(entry))) && state.call.top_k <= kPanel) {
    count_path(state.call.paths, Path::top_k_tightened);
    tighten(state, candidate_bits, weights);
    some = words_with_candidates(candidate_bits);
  }
  const std::int64_t count = gather(w, candidate_bits, some, weights, kv_block_key);
  __builtin_memset(candidate_bits, 0, kLanes * kVectors * sizeof(CandidateBits));
  // Shifts that moved since may have left less than counts.
  for (std::int64_t i = 0; state.tracks_maxima && i < count; ++i) {
    const Vf x = load(w.candidates.weight + i * kLanes);
    store(w.candidates.weight + i * kLanes, select(greater(x, splat(kAnyWeight)), x, splat(kNoWeight)));
  }
  const CandidateColumns lists = lists_of(w, row);
  count_path(state.call.paths, Path::top_k_insertion);
  insert(lists, w.levels, w.candidates, w.moved, count);
  clear(w.candidates, count);
  store_first(entry, real, maximum(load(lists.weight + (state.call.top_k - 1) * kLanes), splat(kAnyWeight)));
}

/// The same for a block of rows from `row` on.
inline void insert_candidates(const TaskState& state, std::int64_t row, std::int64_t rows,
                              std::int64_t kv_block_key) {
  if (state.call.top_k == 0) return;
  const std::int64_t end = smaller(row + rows, state.rows);
  for (std::int64_t r = row; r < end; r += kLanes)
    insert_candidates_of_rows(state, r, end - r, state.w.weights + (r - row) * kKvBlock, kv_block_key);
}

}  // namespace heed::detail::HEED_ISA
