// What a call asks for besides the output, taken from the weights of a chunk while they lie in the cache: the
// most attended keys, the distance, the map. Weights are in flight (kGain * 2^(score - shift)) and are
// divided by their sum at the end; when a row's shift grows, what has been gathered is scaled with it (see
// raise in forward.hpp).
#pragma once

#include "attention/cpu/pack.hpp"

namespace heed::detail::HEED_ISA {

/// The best keys of one row so far, best first; equal weights by the lower key. Keys are offered in rising
/// order. Up to kLanes of them are kept in vectors, with keys as floats where those are exact.
struct TopK {
  float* weight;      // [room]
  float* position;    // [room], of a key in its segment; kShort only
  std::int64_t* key;  // [room]
  std::int64_t capacity;
  bool is_short;

  /// A weight must reach it to enter; below every weight while there is room.
  float entry() const { return weight[capacity - 1]; }
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

/// A lower bound of the k-th largest of `count` weights, for k <= kLanes: the k-th largest of the lanes'
/// maxima, for each of which there is one weight. It spares most of the insertions that a first chunk would
/// make.
inline float kth_bound(const float* weights, std::int64_t count, std::int64_t k) {
  if (k > kLanes) return -1.0f;
  Vf best = splat(-1.0f);
  for (std::int64_t i = 0; i + kLanes <= count; i += kLanes) best = maximum(best, load(weights + i));
  alignas(64) float lane[kLanes];
  store(lane, best);
  Vf above = zero();  // how many lanes are larger
  for (int i = 0; i < kLanes; ++i) above = add(above, keep(greater(splat(lane[i]), best), splat(1.0f)));
  const Mask among = greater(splat(static_cast<float>(k)), above);
  return -reduce_max(select(among, sub(zero(), best), splat(-__builtin_inff())));
}

/// Puts a weight where it belongs: lanes that are not smaller stay, the others move up by one.
HEED_INLINE void insert_short(Vf& weights, Vf& positions, float weight, float position) {
  const Vf moved = slide_up(weights, __builtin_inff());
  const Mask stays = greater_equal(weights, splat(weight));
  const Mask follows = greater_equal(moved, splat(weight));  // the lane before stays: this one is its place
  weights = select(stays, weights, select(follows, splat(weight), moved));
  positions = select(stays, positions, select(follows, splat(position), slide_up(positions, 0.0f)));
}

/// Offers keys [key, key + count) of weights [count] to a row's best.
inline void offer_short(const TopK& top, const float* weights, std::int64_t count, std::int64_t key) {
  float bound = top.entry();
  if (bound < 0) bound = kth_bound(weights, count, top.capacity);
  constexpr std::int64_t kWord = 64;
  Vf best = load(top.weight);
  Vf positions = load(top.position);
  for (std::int64_t first = 0; first < count; first += kWord) {
    // One bit a key that may enter: collected without branches, for each would be a guess.
    std::uint64_t hits = 0;
    for (std::int64_t i = 0; i < kWord && first + i < count; i += kLanes) {
      const std::int64_t here = smaller(kLanes, count - first - i);
      const Vf w = here == kLanes ? load(weights + first + i) : load_first(weights + first + i, here);
      std::uint64_t bits = bits_of(greater_equal(w, splat(bound)));
      if (here < kLanes) bits &= (std::uint64_t{1} << here) - 1;
      hits |= bits << i;
    }
    for (; hits != 0; hits &= hits - 1) {
      const std::int64_t at = first + __builtin_ctzll(hits);
      insert_short(best, positions, weights[at], static_cast<float>(key + at));
    }
  }
  store(top.weight, best);
  store(top.position, positions);
}

inline void offer(const TopK& top, const float* weights, std::int64_t count, std::int64_t key) {
  if (top.is_short) {
    offer_short(top, weights, count, key);
    return;
  }
  for (std::int64_t k = 0; k < count; ++k) {
    if (!(weights[k] > top.entry())) continue;
    std::int64_t i = top.capacity - 1;
    for (; i > 0 && top.weight[i - 1] < weights[k]; --i) {
      top.weight[i] = top.weight[i - 1];
      top.key[i] = top.key[i - 1];
    }
    top.weight[i] = weights[k];
    top.key[i] = key + k;
  }
}

/// sums[kLanes] += weight * |position - key| over `count` keys from `key` on.
inline void add_distance(float* sums, const float* weights, std::int64_t count, std::int64_t position,
                         std::int64_t key) {
  Vf sum = load(sums);
  Vf distance = sub(splat(static_cast<float>(position - key)), lane_numbers());
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const std::int64_t here = smaller(kLanes, count - i);
    const Vf w = here == kLanes ? load(weights + i) : load_first(weights + i, here);
    sum = mul_add(w, absolute(distance), sum);
    distance = sub(distance, splat(static_cast<float>(kLanes)));
  }
  store(sums, sum);
}

inline float sum_of(const float* weights, std::int64_t count) {
  if (count < kLanes) {
    float sum = 0;
    for (std::int64_t i = 0; i < count; ++i) sum += weights[i];
    return sum;
  }
  Vf sum = zero();
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) sum = add(sum, load(weights + i));
  if (i < count) sum = add(sum, load_first(weights + i, count - i));
  return reduce_add(sum);
}

/// The first key of a map's column c: the smallest j with floor(j * columns / keys) = c.
inline std::int64_t column_begin(std::int64_t c, std::int64_t columns, std::int64_t keys) {
  return (c * keys + columns - 1) / columns;
}

/// bins[columns] += weights of `count` keys from `key` (of the tensor) on.
inline void add_to_bins(float* bins, std::int64_t columns, std::int64_t keys, const float* weights,
                        std::int64_t count, std::int64_t key) {
  const std::int64_t end = key + count;
  std::int64_t column = key * columns / keys;
  while (key < end) {
    const std::int64_t next = smaller(end, column_begin(column + 1, columns, keys));
    if (next > key) bins[column] += sum_of(weights, next - key);
    weights += next - key;
    key = next;
    ++column;
  }
}

}  // namespace heed::detail::HEED_ISA
