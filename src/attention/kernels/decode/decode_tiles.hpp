// Attention of few query rows in bf16 by tile registers, as in decoding. Tiles read keys and values where
// they lie, so no vector touches them.
//
// Scores: keys are the rows of a product, and queries its columns. Values: a tile of values has 16 keys, with
// 16 pairs of channels each. A pair is multiplied by (w, 0) for its even channel and by (0, w) for its odd
// one. So values need not be paired by keys, which would cost more than the products. A weight is the sum of
// two bf16, so it is exact to 2^-17.
//
// A task goes over phases of 64 keys. A phase multiplies its keys, then the values of the phase before, and
// then computes its weights. So nothing is read that was just computed. Each tile product prefetches as much
// memory as it reads.
#pragma once

#include "attention/kernels/decode/decode.hpp"
#include "attention/kernels/softmax/matrix_tiles.hpp"

namespace heed::detail::HEED_ISA {

inline constexpr std::int64_t kTileKeys = 16;
inline constexpr std::int64_t kPhaseKeys = kTilesAtOnce * kTileKeys;
static_assert(!kHasMatrixTiles || (kKvBlock % kPhaseKeys == 0 && kPhaseKeys % kPanel == 0));

/// Sixteen rows of keys or values; rows are `stride` floats apart.
struct RowTile {
  const float* data;
  std::int64_t stride;
};

/// The tile from row `first` on. It is copied to `room` [16][floats] if its rows are not evenly spaced, are
/// not whole floats apart, or are not all `valid`. Other rows are zeros there.
inline RowTile row_tile(const HeadRows& rows, std::int64_t first, const KeyRange& valid, std::int64_t floats,
                        float* room) {
  const auto row = [&](std::int64_t r) { return reinterpret_cast<const float*>(rows.address(first + r)); };
  constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));
  if (valid.begin == 0 && valid.end == kTileKeys && rows.row_bytes % kFloat == 0 &&
      rows.is_even(first, kTileKeys))
    return {row(0), rows.row_bytes / kFloat};
  for (std::int64_t r = 0; r < kTileKeys; ++r)
    for (std::int64_t i = 0; i < floats; i += kLanes)
      store(room + r * floats + i, r >= valid.begin && r < valid.end ? load(row(r) + i) : zero());
  return {room, floats};
}

/// The rows of the tile from key `at` on that are among `keys`.
inline KeyRange valid_rows(const KeyRange& keys, std::int64_t at) {
  return {larger(0, keys.begin - at), smaller(kTileKeys, keys.end - at)};
}

/// Prefetches rows, sixteen at a time, column by column. Memory answers that a fifth faster than line after
/// line.
class TilePrefetch {
 public:
  TilePrefetch(const HeadRows& rows, std::int64_t first, std::int64_t floats)
      : rows_(rows), row_(first), columns_(floats / kLanes), stride_(rows.row_bytes) {}

  /// Rows from `end` on are not prefetched.
  void until(std::int64_t end) { end_ = end; }
  /// Prefetches a column of sixteen rows.
  HEED_INLINE void operator()() {
    if (column_ == 0) {
      if (row_ >= end_) return;
      is_even_ =
          rows_.numbers == nullptr || (row_ + kTileKeys <= rows_.count && rows_.is_even(row_, kTileKeys));
      from_ = rows_.address_ahead(row_);
      row_ += kTileKeys;
    }
    if (is_even_) {
      const char* at = from_ + column_ * 64;
#pragma GCC unroll 16
      for (std::int64_t r = 0; r < kTileKeys; ++r, at += stride_) __builtin_prefetch(at, 0, 2);
    } else {
      fetch_rows();
    }
    if (++column_ == columns_) column_ = 0;
  }

 private:
  [[gnu::noinline]] void fetch_rows() const {
    for (std::int64_t r = row_ - kTileKeys; r < row_; ++r)
      __builtin_prefetch(rows_.address_ahead(r) + column_ * 64, 0, 2);
  }

  HeadRows rows_;
  std::int64_t row_, end_ = 0, columns_, column_ = 0, stride_;
  const char* from_ = nullptr;
  bool is_even_ = true;
};

/// Results that are still in tile registers, and where they belong. They are stored when the next product
/// starts on the registers: a store right after the last tile product would wait for it.
template <class Tiles>
struct DeferredTiles {
  float* to = nullptr;  // [kTilesAtOnce][16][16]; nullptr: none

  template <int kTile>
  HEED_INLINE void restart() const {
    if (to != nullptr) Tiles::template store<kTile>(to + kTile * kTileFloats, kLanes);
    Tiles::template clear<kTile>();
  }
  void store() {
    if (to == nullptr) return;
    for_each_constant<kTilesAtOnce>([&](auto tile) {
      Tiles::template store<decltype(tile)::value>(to + decltype(tile)::value * kTileFloats, kLanes);
    });
    to = nullptr;
  }
};

/// Leaves in registers the products [count][16 keys][16 rows] of tiles of keys with queries [lanes][16 rows].
template <class Tiles>
void multiply_key_tiles(const RowTile (&keys)[kTilesAtOnce], int count, const float* queries,
                        std::int64_t lanes, const DeferredTiles<Tiles>& deferred, TilePrefetch& ahead) {
  TilePrefetch prefetch = ahead;  // its members can stay in registers
  for_each_constant<kTilesAtOnce>([&](auto tile) __attribute__((always_inline)) {
    constexpr int kTile = decltype(tile)::value, kKeys = kTilesAtOnce + kTile % 3;
    deferred.template restart<kTile>();
    if (kTile >= count) return;
    for (std::int64_t lane = 0; lane < lanes; lane += kLanes) {
      Tiles::template load<7>(queries + lane * kMatrixRows, kMatrixRows);
      Tiles::template load<kKeys>(keys[kTile].data + lane, keys[kTile].stride);
      Tiles::template multiply_add<kTile, kKeys, 7>();
      prefetch();
    }
  });
  ahead = prefetch;
}

/// Leaves in registers the products [count][16][16] of weights [steps][16][16], which split_row_weights()
/// makes, with `count` columns of values [steps] from `column` on.
template <class Tiles>
void multiply_value_tiles(const float* weights, const RowTile* values, std::int64_t steps,
                          std::int64_t column, int count, const DeferredTiles<Tiles>& deferred,
                          TilePrefetch& ahead) {
  TilePrefetch prefetch = ahead;
  for (std::int64_t step = 0; step < steps; ++step) {
    Tiles::template load<7>(weights + step * kTileFloats, kLanes);
    for_each_constant<kTilesAtOnce>([&](auto tile) __attribute__((always_inline)) {
      constexpr int kTile = decltype(tile)::value, kValues = kTilesAtOnce + kTile % 3;
      if (step == 0) deferred.template restart<kTile>();
      if (kTile >= count) return;
      Tiles::template load<kValues>(values[step].data + (column + kTile) * kLanes, values[step].stride);
      Tiles::template multiply_add<kTile, 7, kValues>();
      prefetch();
    });
  }
  ahead = prefetch;
}

/// Rows of the operand that split_row_weights() makes, for query row 0: both parts of the weights, for even
/// channels and for odd ones.
inline constexpr int kEven = 0, kOdd = kTileRows, kEvenRest = 2 * kTileRows, kOddRest = 3 * kTileRows;
static_assert(4 * kTileRows == kMatrixRows);

/// Makes an operand [keys / 16][16][16] of weights [kTileRows][kKvBlock], for `keys`, which are whole tiles.
inline void split_row_weights(const float* weights, const KeyRange& keys, float* to) {
  for (std::int64_t k = keys.begin; k < keys.end; k += kTileKeys, to += kTileFloats)
#pragma GCC unroll 4
    for (int r = 0; r < kTileRows; ++r) {
      const Vf weight = load(weights + r * kKvBlock + k);
      const Vf even = pair_rounded(weight, zero()), rest = sub(weight, low_halves(even));
      store(to + (kEven + r) * kLanes, even);
      store(to + (kOdd + r) * kLanes, pair_rounded(zero(), weight));
      store(to + (kEvenRest + r) * kLanes, pair_rounded(rest, zero()));
      store(to + (kOddRest + r) * kLanes, pair_rounded(zero(), rest));
    }
}

/// output [2 kLanes] += factor * the products of one row with a tile of values.
inline void add_even_and_odd(const float* products, float factor, float* output) {
  const auto sum = [&](int part, int rest) {
    return add(load(products + part * kLanes), load(products + rest * kLanes));
  };
  Vf a, b;
  join_pairs(sum(kEven, kEvenRest), sum(kOdd, kOddRest), a, b);
  store(output, mul_add(a, splat(factor), load(output)));
  store(output + kLanes, mul_add(b, splat(factor), load(output + kLanes)));
}

/// A task on its way over keys [begin, end) of its segment. They begin with a KV block.
template <class Tiles>
class TileDecoding {
 public:
  TileDecoding(TaskState& state, std::int64_t begin, std::int64_t end)
      : state_(state),
        w_(state.w),
        seen_{state.w.group[0].begin, smaller(end, state.w.group[0].end)},
        rows_(round_up(state.rows, kTileRows)),
        value_lanes_(state.w.value_columns / 2),
        keys_ahead_(state.kv.keys, begin + 2 * kPhaseKeys, state.w.key_lanes),
        values_ahead_(state.kv.values, begin, value_lanes_) {}

  /// Processes a KV block from key `key` on. `alone`: tile registers keep their contents until the next one.
  void attend(std::int64_t key, bool alone) {
    for (std::int64_t phase = key; phase < key + kKvBlock; phase += kPhaseKeys)
      attend_phase(phase, {larger(seen_.begin, phase), smaller(seen_.end, phase + kPhaseKeys)});
    const KeyRange read = {larger(0, seen_.begin - key) / kPanel * kPanel,
                           smaller(kKvBlock, seen_.end - key)};
    if (read.begin >= read.end) return;
    insert_candidates(state_, 0, rows_, w_.weights, key);
    if (state_.call.kept.weights != nullptr) keep_weights(state_, key, read, w_.weights);
    if (!alone) empty_registers();
  }

  void finish() {
    empty_registers();
    multiply_values();
    empty_registers();
  }

  static void* operator new(std::size_t /*size*/, void* room) { return room; }

 private:
  void attend_phase(std::int64_t key, const KeyRange& keys) {
    if (keys.begin >= keys.end) return;
    multiply_keys(key, keys);
    add_products();
    if (value_keys_.begin < value_keys_.end)
      multiply_values();
    else
      deferred_.store();
    {
      const MatrixTiles::Lent lent(static_cast<bool>(state_.call.score_mod));
      convert_scores(key, keys);
    }
    if (!state_.call.output.data) return;
    value_keys_ = keys;
    const std::int64_t block = key / kKvBlock * kKvBlock;
    for (std::int64_t row = 0; row < rows_; row += kTileRows)
      split_row_weights(w_.weights + row * kKvBlock - block, whole_tiles(keys), operand(row));
    for (std::int64_t r = 0; r < rows_; ++r) weight_shifts_[r] = w_.softmax.shift[r];
  }

  static KeyRange whole_tiles(const KeyRange& keys) {
    return {keys.begin / kTileKeys * kTileKeys, round_up(keys.end, kTileKeys)};
  }
  /// The weights of kTileRows rows from `row` on, as operand and, times values, as products.
  float* operand(std::int64_t row) const {
    return w_.weight_parts + row * (kPhaseKeys / kTileRows) * kMatrixRows;
  }
  float* products(std::int64_t row) const {
    return w_.product + row / kTileRows * kMatrixRows * value_lanes_;
  }

  /// Multiplies the keys of a phase to w_.key_scores [key][16 rows], which is deferred.
  void multiply_keys(std::int64_t key, const KeyRange& keys) {
    RowTile tiles[kTilesAtOnce];
    int count = 0;
    for (std::int64_t k = key; k < keys.end; k += kTileKeys, ++count)
      tiles[count] = row_tile(state_.kv.keys, k, valid_rows({keys.begin / kPanel * kPanel, keys.end}, k),
                              w_.key_lanes, w_.packed + count * kTileKeys * w_.key_lanes);
    values_ahead_.until(key + kPhaseKeys);
    keys_ahead_.until(key + 3 * kPhaseKeys);
    multiply_key_tiles<Tiles>(tiles, count, w_.query_columns, w_.key_lanes, deferred_,
                              state_.call.output.data ? values_ahead_ : keys_ahead_);
    deferred_ = {w_.key_scores};
  }

  /// Makes weights of w_.key_scores.
  void convert_scores(std::int64_t key, const KeyRange& keys) {
    for (std::int64_t at = keys.begin / kPanel * kPanel; at < keys.end; at += kPanel) {
      alignas(64) float scores[kMatrixRows][kPanel];
      const bool in_range = transpose_scores(w_.key_scores + (at - key) * kMatrixRows, scores);
      float* weights = w_.weights + at % kKvBlock;
      for (std::int64_t row = 0; row < rows_; row += kTileRows)
        softmax_scores(state_, row, at, reinterpret_cast<float(&)[kTileRows][kPanel]>(scores[row]),
                       weights + row * kKvBlock, at % kKvBlock, !in_range);
      add_panel_statistics(state_, 0, rows_, at, weights, smaller(kPanel, keys.end - at));
    }
  }

  /// Transposes and scales products [kPanel][16 rows]. Returns false if a score is not finite, or larger than
  /// weights can be computed from.
  bool transpose_scores(const float* from, float (&scores)[kMatrixRows][kPanel]) const {
    const Vf limit = splat(kMaxScore), scale = splat(state_.call.log2_scale);
    std::uint32_t in_range = kAllLanes;
    for (int v = 0; v < kPanelVectors; ++v) {
      Vf block[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) block[i] = load(from + (v * kLanes + i) * kMatrixRows);
      transpose(block);
#pragma GCC unroll 16
      for (int r = 0; r < kLanes; ++r) {
        if (r >= rows_) break;
        const Vf score = mul(block[r], scale);
        in_range &= bits_of(greater_equal(limit, absolute(score)));
        store(scores[r] + v * kLanes, score);
      }
    }
    return in_range == kAllLanes;
  }

  /// Multiplies the weights of the phase before with its values; the last products are deferred.
  void multiply_values() {
    const KeyRange keys = whole_tiles(value_keys_);
    if (keys.begin >= keys.end) return;
    RowTile values[kTilesAtOnce];
    std::int64_t steps = 0;
    for (std::int64_t k = keys.begin; k < keys.end; k += kTileKeys, ++steps)
      values[steps] = row_tile(state_.kv.values, k, valid_rows(value_keys_, k), value_lanes_,
                               w_.packed + steps * kTileKeys * value_lanes_);
    keys_ahead_.until(keys.begin / kPhaseKeys * kPhaseKeys + 3 * kPhaseKeys);
    for (std::int64_t row = 0; row < rows_; row += kTileRows)
      for (std::int64_t column = 0; column * kLanes < value_lanes_; column += kTilesAtOnce) {
        const auto count = static_cast<int>(smaller(kTilesAtOnce, value_lanes_ / kLanes - column));
        multiply_value_tiles<Tiles>(operand(row), values, steps, column, count, deferred_, keys_ahead_);
        deferred_ = {products(row) + column * kTileFloats};
      }
    value_keys_ = {0, 0};
    has_products_ = true;
    for (std::int64_t r = 0; r < rows_; ++r) product_shifts_[r] = weight_shifts_[r];
  }

  void empty_registers() {
    deferred_.store();
    add_products();
  }

  /// Adds the stored products to the output. Shifts may have risen since the weights were computed.
  void add_products() {
    if (!has_products_) return;
    has_products_ = false;
    for (std::int64_t row = 0; row < rows_; ++row) {
      const float factor = factor_since(product_shifts_[row], w_.softmax.shift[row]);
      const float* from = products(row) + row % kTileRows * kLanes;
      float* output = w_.softmax.output + row * w_.value_columns;
      for (std::int64_t lane = 0; lane < value_lanes_; lane += kLanes)
        add_even_and_odd(from + lane / kLanes * kTileFloats, factor, output + 2 * lane);
    }
  }

  TaskState& state_;
  const Workspace& w_;
  const KeyRange seen_;
  const std::int64_t rows_, value_lanes_;
  TilePrefetch keys_ahead_, values_ahead_;
  DeferredTiles<Tiles> deferred_;
  KeyRange value_keys_ = {0, 0};  ///< whose weights are not multiplied by values yet
  bool has_products_ = false;
  float weight_shifts_[kTileDecodeRows], product_shifts_[kTileDecodeRows];
};

/// Processes KV blocks from `key` on, before `end`, for all rows of each task. Tasks take turns.
template <class Tiles>
void attend_by_tiles(const TasksTogether& tasks, std::int64_t key, std::int64_t end) {
  using Decoding = TileDecoding<Tiles>;
  alignas(Decoding) std::byte rooms[cpu::kTasksTogether][sizeof(Decoding)];
  Decoding* of[cpu::kTasksTogether];
  for (std::int64_t t = 0; t < tasks.count; ++t) of[t] = new (rooms[t]) Decoding(*tasks.of[t], key, end);
  const std::int64_t step_end = smaller(end, key + kDecodeKvBlocks * kKvBlock);
  for (std::int64_t block = key; block < step_end; block += kKvBlock)
    for (std::int64_t t = 0; t < tasks.count; ++t) of[t]->attend(block, tasks.count == 1);
  for (std::int64_t t = 0; t < tasks.count; ++t) of[t]->finish();
}

}  // namespace heed::detail::HEED_ISA
