// The most attended keys of each row. While a KV block is scored, keys whose weight may enter their row's
// list are marked as bits (TileRows::candidate_bits). Afterwards the marked keys of kLanes rows are gathered
// in ascending order, one column per row. Then the first, second, … entries of the columns are inserted into
// all these rows' lists at once (top_k_lists.hpp). With matrix tiles, candidates of plain panels are gathered
// after each panel instead, and wait in columns until some are long.
#pragma once

#include "attention/kernels/softmax/workspace.hpp"

namespace heed::detail::HEED_ISA {

// The candidate bits of kLanes rows and a KV block are read as words, several per row.
inline constexpr int kVectors = kKvBlock / kLanes;
inline constexpr int kCandidateBits = 8 * sizeof(CandidateBits);
inline constexpr int kRowWords = kVectors * kCandidateBits / 64;
inline constexpr int kCandidateWords = kLanes * kRowWords;
static_assert(kVectors * kCandidateBits % 64 == 0 && kCandidateWords % 8 == 0 && kCandidateWords < 64);
// Lists with room are judged by so many maxima: tighten().
inline constexpr int kMaximaVectors = kHasMatrixTiles ? 4 : kPanelVectors;
inline constexpr int kMaxima = kMaximaVectors * kLanes;
static_assert(kVectors % kMaximaVectors == 0);
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

inline void start_candidates(const TaskState& state) {
  const Workspace& w = state.w;
  clear(w.candidates, kKvBlock);
  if constexpr (kHasMatrixTiles) {
    clear(w.waiting.columns, kGroupRows / kLanes * kMostWaiting);
    for (std::int64_t i = 0; i < kGroupRows / kLanes; ++i) w.waiting.count[i] = 0;
  }
  for (std::int64_t i = 0; i < w.list_rows * kVectors; ++i) w.candidate_bits[i] = 0;
}

/// largest [kMaximaVectors]: lane-wise maxima of a row's candidates over all panels.
HEED_INLINE void largest_candidates(const CandidateBits* candidate_bits, const float* weights,
                                    Vf (&largest)[kMaximaVectors]) {
#pragma GCC unroll 4
  for (int v = 0; v < kMaximaVectors; ++v) largest[v] = zero();
  for (int first = 0; first < kVectors; first += kMaximaVectors) {
#pragma GCC unroll 4
    for (int v = 0; v < kMaximaVectors; ++v)  // a vector without candidates may be uninitialised
      if (candidate_bits[first + v] != 0)
        largest[v] = maximum(largest[v], load(weights + (first + v) * kLanes));
  }
}

/// Removes candidates that cannot enter the lists of kLanes rows, for lists with room, which would take all.
/// It needs a lower bound of the k-th largest weight: the k-th largest of kMaxima maxima, each over some of
/// the weights.
inline void tighten(const TaskState& state, CandidateBits* candidate_bits, const float* weights) {
  const Workspace& w = state.w;
  Vf largest[kMaximaVectors][kLanes];
  for (int r = 0; r < kLanes; ++r) {
    Vf row[kMaximaVectors];
    largest_candidates(candidate_bits + r * kVectors, weights + r * kKvBlock, row);
#pragma GCC unroll 4
    for (int v = 0; v < kMaximaVectors; ++v) largest[v][r] = row[v];
  }
#pragma GCC unroll 4
  for (int v = 0; v < kMaximaVectors; ++v) {
    transpose(largest[v]);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) store(w.moved + (v * kLanes + i) * kLanes, largest[v][i]);
  }
  alignas(64) float best[(kMaxima + kLevelsAtOnce) * kLanes];
  insert_weights(best, w.softmax.levels, w.moved, kMaxima);
  // For a normal number x, x * (1 - 2^-24) is the next smaller float.
  alignas(64) float bound[kLanes];
  store(bound, mul(load(best + (state.call.top_k - 1) * kLanes), splat(1 - 0x1p-24f)));
  for (int r = 0; r < kLanes; ++r)
    for (int v = 0; v < kVectors; ++v) {
      const auto above = bits_of(greater(load(weights + r * kKvBlock + v * kLanes), splat(bound[r])));
      candidate_bits[r * kVectors + v] = static_cast<CandidateBits>(candidate_bits[r * kVectors + v] & above);
    }
}

/// Bit i is set if word i of the candidates of kLanes rows is not 0.
inline std::uint64_t words_with_candidates(const CandidateBits* candidate_bits) {
  std::uint64_t some = 0;
  for (int i = 0; i < kCandidateWords; i += 8)
    some |= bits_of_nonzero(reinterpret_cast<const std::uint64_t*>(candidate_bits) + i) << i;
  return some;
}

/// The candidates of a group's rows in a panel.
struct PanelCandidates {
  const float* weights;        ///< [kPanelVectors][kGroupRows][kLanes]
  const CandidateBits* marks;  ///< [kPanelVectors][kGroupRows]
  std::int64_t key;            ///< the panel's first key
};

#if defined(HEED_ROW_BITS)

/// Appends one candidate of each row after another to columns with `count` entries. Returns the new count. A
/// loop of unpredictable length costs more than a gather in vain, so two are gathered at a time.
template <std::size_t kWords>
HEED_INLINE std::int64_t append(const CandidateColumns& to, std::int64_t count, RowBits<kWords>& bits,
                                const float* weights, std::int32_t row_stride, std::int32_t vector_stride,
                                std::int64_t key) {
  do {
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const std::int64_t at = count * kLanes;
      count += static_cast<std::int64_t>(bits.take());
      store(to.weight + at, bits.gather(weights, row_stride, vector_stride, splat(kNoWeight)));
      store(reinterpret_cast<float*>(to.key) + at, bits.places(static_cast<std::int32_t>(key)));
    }
  } while (bits.any());
  return count;
}

/// Appends the candidates of kLanes rows, from `row` of the group on, and of the panel's vectors v and v + 1.
HEED_INLINE std::int64_t append(const CandidateColumns& to, std::int64_t count, const PanelCandidates& from,
                                std::int64_t row, int v) {
  const CandidateBits* marks = from.marks + v * kGroupRows + row;
  RowBits<1> bits(marks, marks + kGroupRows);
  return append(to, count, bits, from.weights + (v * kGroupRows + row) * kLanes, kLanes, kGroupRows * kLanes,
                from.key + v * kLanes);
}

/// Gathers the candidates of kLanes rows into columns. Returns the number of entries of the longest column.
/// `key` is the KV block's first key.
inline std::int64_t gather(const Workspace& w, const CandidateBits* candidate_bits, std::uint64_t /*some*/,
                           const float* weights, std::int64_t key) {
  RowBits<2 * kRowWords> bits(reinterpret_cast<const std::uint32_t*>(candidate_bits));
  return append(w.candidates, 0, bits, weights, kKvBlock, kLanes, key);
}

#else

HEED_INLINE std::int64_t append(const CandidateColumns& to, std::int64_t count, const PanelCandidates& from,
                                std::int64_t row, int v) {
  std::int64_t longest = count;
  for (std::int64_t r = row; r < row + kLanes; ++r) {
    std::int64_t at = count;
    for (std::int64_t key = v * kLanes; key < (v + 2) * kLanes; ++key) {
      const std::int64_t vector = key / kLanes * kGroupRows + r;
      if ((from.marks[vector] >> key % kLanes & 1) == 0) continue;
      to.weight[at * kLanes + r - row] = from.weights[vector * kLanes + key % kLanes];
      to.key[at++ * kLanes + r - row] = static_cast<std::int32_t>(from.key + key);
    }
    longest = larger(longest, at);
  }
  return longest;
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

/// Gathers the candidates of kLanes rows into columns. Returns the number of entries of the longest column.
/// `some` is from words_with_candidates; `key` is the KV block's first key.
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
    // Advances to the next word after a word's last candidate. It uses masks, because a branch would be
    // unpredictable.
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

#endif

/// Inserts `count` candidates of each of kLanes rows, of which the first `real` have lists, and empties the
/// columns.
inline void insert_columns(const TaskState& state, std::int64_t row, std::int64_t real,
                           const CandidateColumns& columns, std::int64_t count) {
  const SoftmaxState& s = state.w.softmax;
  if (state.tracks_maxima) drop_light_entries(columns, count);
  const CandidateColumns lists = lists_of(s, row);
  count_path(state.call.paths, Path::top_k_insertion);
  insert(lists, s.levels, columns, state.w.moved, count);
  clear(columns, count);
  const Vf last = load(lists.weight + (state.call.top_k - 1) * kLanes);
  store_first(s.entry_threshold + row, real, maximum(last, splat(kAnyWeight)));
}

/// Called after a KV block: inserts the marked keys of kLanes rows, of which the first `real` have lists.
inline void insert_candidates_of_rows(const TaskState& state, std::int64_t row, std::int64_t real,
                                      const float* weights, std::int64_t kv_block_key) {
  const Workspace& w = state.w;
  CandidateBits* candidate_bits = w.candidate_bits + row * kVectors;
  std::uint64_t some = words_with_candidates(candidate_bits);
  if (some == 0) return;
  float* entry = w.softmax.entry_threshold + row;
  if (any(greater_equal(splat(kAnyWeight), load(entry))) && state.call.top_k <= kMaxima) {
    count_path(state.call.paths, Path::top_k_tightened);
    tighten(state, candidate_bits, weights);
    some = words_with_candidates(candidate_bits);
  }
  const std::int64_t count = gather(w, candidate_bits, some, weights, kv_block_key);
  __builtin_memset(candidate_bits, 0, kLanes * kVectors * sizeof(CandidateBits));
  insert_columns(state, row, real, w.candidates, count);
}

/// The same for a block of rows from `row` on; `weights` belong to the block.
inline void insert_candidates(const TaskState& state, std::int64_t row, std::int64_t rows,
                              const float* weights, std::int64_t kv_block_key) {
  if (state.call.top_k == 0) return;
  const std::int64_t end = smaller(row + rows, state.rows);
  for (std::int64_t r = row; r < end; r += kLanes)
    insert_candidates_of_rows(state, r, end - r, weights + (r - row) * kKvBlock, kv_block_key);
}

/// Inserts the candidates that wait in columns of at least `length` entries. The group begins at row `row`.
[[gnu::noinline]] inline void insert_waiting(const TaskState& state, std::int64_t row, std::int64_t length) {
  const WaitingCandidates& waiting = state.w.waiting;
  for (std::int64_t i = 0; i < kGroupRows / kLanes; ++i) {
    if (waiting.count[i] < length) continue;
    const std::int64_t first = row + i * kLanes;
    insert_columns(state, first, state.rows - first, waiting.columns.from(i * kMostWaiting),
                   waiting.count[i]);
    waiting.count[i] = 0;
  }
}

}  // namespace heed::detail::HEED_ISA
