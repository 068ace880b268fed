// What a call asks for besides the output, taken from the weights of a chunk while they lie in the cache: the
// most attended keys, the distance, the map. Weights are in flight (kGain * 2^(score - shift)) and are
// divided by their sum at the end; when a row's shift grows, what has been gathered is scaled with it
// (scale_observed in observers.hpp).
#pragma once

#include "attention/cpu/pack.hpp"

namespace heed::detail::HEED_ISA {

/// Weights that count: a forbidden key has a weight of 0, and allowed ones that small are told apart in
/// complete_top.
inline constexpr float kLeastWeight = 0x1p-126f;

HEED_INLINE float larger_of(float a, float b) { return a > b ? a : b; }

/// The best keys of one row so far, best first; equal weights by the lower key. Keys are offered in rising
/// order. Up to kLanes of them are kept in vectors, with keys as floats where those are exact.
struct TopK {
  float* weight;      // [room]
  float* position;    // [room], of a key in its segment; kShort only
  std::int64_t* key;  // [room]
  std::int64_t capacity;
  bool is_short;
};

inline constexpr std::int64_t kExactFloat = 1 << 24;

HEED_INLINE bool is_short_list(std::int64_t capacity, std::int64_t keys) {
  return capacity <= kLanes && keys < kExactFloat;
}
HEED_INLINE std::int64_t list_room(std::int64_t capacity) { return larger(capacity, kLanes); }

inline void clear(const TopK& top) {
  for (std::int64_t i = 0; i < list_room(top.capacity); ++i) {
    top.weight[i] = -1.0f;
    top.position[i] = -1.0f;
    top.key[i] = -1;
  }
}

/// The k-th largest lane, for k <= kLanes. Where lanes are the largest of some weights each, it is a lower
/// bound of the k-th largest of all of them, which spares most of the insertions that a first chunk would
/// make.
inline float kth_lane(Vf lanes, std::int64_t k) {
  alignas(64) float lane[kLanes];
  store(lane, lanes);
  Vf above = zero();  // how many lanes are larger
  for (int i = 0; i < kLanes; ++i) above = add(above, keep(greater(splat(lane[i]), lanes), splat(1.0f)));
  const Mask among = greater(splat(static_cast<float>(k)), above);
  return -reduce_max(select(among, sub(zero(), lanes), splat(-__builtin_inff())));
}

/// Puts a weight where it belongs: lanes that are not smaller stay, the others move up by one. The weights go
/// by way of minima and maxima, the shortest chain from one insertion to the next.
HEED_INLINE void insert_short(Vf& weights, Vf& positions, float weight, float position) {
  const Vf x = splat(weight);
  const Vf moved = slide_up(weights, __builtin_inff());
  const Mask stays = greater_equal(weights, x);
  const Mask follows = greater_equal(moved, x);  // the lane before stays: this one is its place
  weights = maximum(weights, minimum(moved, x));
  positions = select(stays, positions, select(follows, splat(position), slide_up(positions, 0.0f)));
}

/// Offers a panel of weights, of keys from `key` on, to a row's best; only those that reach `bound` can
/// enter.
HEED_INLINE void offer_short(const TopK& top, const float* weights, float bound, std::int64_t key) {
  // One bit a key, collected without branches, for each would be a guess.
  std::uint64_t hits = 0;
#pragma GCC unroll 3
  for (int v = 0; v < kPanelVectors; ++v)
    hits |= std::uint64_t{bits_of(greater_equal(load(weights + v * kLanes), splat(bound)))} << (v * kLanes);
  Vf best = load(top.weight);
  Vf positions = load(top.position);
  for (; hits != 0; hits &= hits - 1) {
    const int k = __builtin_ctzll(hits);
    insert_short(best, positions, weights[k], static_cast<float>(key + k));
  }
  store(top.weight, best);
  store(top.position, positions);
}

HEED_INLINE void offer(const TopK& top, const float* weights, float bound, std::int64_t key) {
  if (top.is_short) return offer_short(top, weights, bound, key);
  for (std::int64_t k = 0; k < kPanel; ++k) {
    if (!(weights[k] >= bound && weights[k] > top.weight[top.capacity - 1])) continue;
    std::int64_t i = top.capacity - 1;
    for (; i > 0 && top.weight[i - 1] < weights[k]; --i) {
      top.weight[i] = top.weight[i - 1];
      top.key[i] = top.key[i - 1];
    }
    top.weight[i] = weights[k];
    top.key[i] = key + k;
  }
}

/// sums[kLanes] += weight * |position - key| over a panel of keys from `key` on.
inline void add_distance(float* sums, const float* weights, std::int64_t position, std::int64_t key) {
  Vf sum = load(sums);
  const Vf distance = sub(splat(static_cast<float>(position - key)), lane_numbers());
#pragma GCC unroll 3
  for (int v = 0; v < kPanelVectors; ++v)
    sum = mul_add(load(weights + v * kLanes), absolute(sub(distance, splat(static_cast<float>(v * kLanes)))),
                  sum);
  store(sums, sum);
}

/// Which column of a map a key falls into.
struct Columns {
  std::int64_t count, keys;

  std::int64_t of(std::int64_t key) const { return key * count / keys; }
  /// The first key of a column: the smallest j with floor(j * count / keys) = c.
  std::int64_t begin(std::int64_t c) const { return (c * keys + count - 1) / count; }
  bool hold_a_vector() const { return keys >= count * kLanes; }
};

/// The sum of the lanes of each vector.
HEED_INLINE Vf sums_of_lanes(Vf (&rows)[kLanes]) {
  transpose(rows);
  Vf sum = rows[0];
#pragma GCC unroll 16
  for (int i = 1; i < kLanes; ++i) sum = add(sum, rows[i]);
  return sum;
}

/// bins [columns][stride] += weights [kLanes][ld] of kLanes rows for `count` keys, whole vectors of them,
/// from `key` (of the tensor) on. Bins of a column lie beside each other, one a row. Here every column holds
/// a vector of keys, so that no vector meets more than two of them. Returns the last column.
inline std::int64_t add_to_wide_bins(float* bins, std::int64_t stride, const Columns& columns,
                                     const float* weights, std::int64_t ld, std::int64_t key) {
  std::int64_t column = columns.of(key);
  std::int64_t next = columns.begin(column + 1) - key;
  Vf sum[kLanes];
#pragma GCC unroll 16
  for (int r = 0; r < kLanes; ++r) sum[r] = zero();
  const auto close = [&]() __attribute__((always_inline)) {
    float* to = bins + column * stride;
    store(to, add(load(to), sums_of_lanes(sum)));
  };
  for (std::int64_t k = 0; k < kPanel; k += kLanes) {
    if (next >= k + kLanes || column + 1 == columns.count) {
#pragma GCC unroll 16
      for (int r = 0; r < kLanes; ++r) sum[r] = add(sum[r], load(weights + r * ld + k));
      continue;
    }
    const Vf lane = lane_numbers();
    const Vf first = splat(static_cast<float>(next - k));
#pragma GCC unroll 16
    for (int r = 0; r < kLanes; ++r)
      sum[r] = add(sum[r], keep(greater(first, lane), load(weights + r * ld + k)));
    close();
#pragma GCC unroll 16
    for (int r = 0; r < kLanes; ++r) sum[r] = keep(greater_equal(lane, first), load(weights + r * ld + k));
    ++column;
    next = columns.begin(column + 1) - key;
  }
  close();
  return column;
}

/// The same for columns of fewer keys: a vector of each row at a time is transposed to one of rows for each
/// key.
inline std::int64_t add_to_narrow_bins(float* bins, std::int64_t stride, const Columns& columns,
                                       const float* weights, std::int64_t ld, std::int64_t key) {
  std::int64_t column = columns.of(key);
  std::int64_t next = columns.begin(column + 1) - key;
  Vf sum = zero();
  const auto close = [&]() __attribute__((always_inline)) {
    float* to = bins + column * stride;
    store(to, add(load(to), sum));
    sum = zero();
  };
  for (std::int64_t k = 0; k < kPanel; k += kLanes) {
    Vf block[kLanes];
#pragma GCC unroll 16
    for (int r = 0; r < kLanes; ++r) block[r] = load(weights + r * ld + k);
    transpose(block);
    alignas(64) float of_key[kLanes * kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) store(of_key + i * kLanes, block[i]);
    for (int i = 0; i < kLanes; ++i) {
      while (next <= k + i && column + 1 < columns.count) {
        close();
        ++column;
        next = columns.begin(column + 1) - key;
      }
      sum = add(sum, load(of_key + i * kLanes));
    }
  }
  close();
  return column;
}

}  // namespace heed::detail::HEED_ISA
