// What a call asks for besides the output, taken from the weights of a chunk while they lie in the cache: the
// most attended keys, the distance, the map. Weights are in flight (kGain * 2^(score - shift)) and are
// divided by their sum at the end; when a row's shift grows, what has been gathered is scaled with it (see
// raise in forward.hpp).
#pragma once

#include "attention/cpu/pack.hpp"

namespace heed::detail::HEED_ISA {

/// The best keys of one row so far, best first; equal weights by the lower key.
struct TopK {
  float* weight;      // [k]
  std::int64_t* key;  // [k]
  std::int64_t capacity;

  /// Weights must exceed it to enter; below every weight while there is room.
  float entry() const { return weight[capacity - 1]; }

  void clear() const {
    for (std::int64_t i = 0; i < capacity; ++i) {
      weight[i] = -1.0f;
      key[i] = -1;
    }
  }

  /// Keys must come in rising order: a later one of equal weight stays behind.
  void insert(float w, std::int64_t k) const {
    std::int64_t i = capacity - 1;
    for (; i > 0 && weight[i - 1] < w; --i) {
      weight[i] = weight[i - 1];
      key[i] = key[i - 1];
    }
    weight[i] = w;
    key[i] = k;
  }
};

/// A lower bound of the k-th largest of `count` weights, for k <= kLanes: the k-th largest of the lanes'
/// maxima, for each of which there is one weight. It spares most of the insertions that a first chunk would
/// make.
inline float kth_bound(const float* weights, std::int64_t count, std::int64_t k) {
  if (k > kLanes) return -1.0f;
  Vf best = splat(-1.0f);
  for (std::int64_t i = 0; i + kLanes <= count; i += kLanes) best = maximum(best, load(weights + i));
  alignas(64) float lane[kLanes];
  store(lane, best);
  float bound = -1.0f;
  for (int i = 0; i < kLanes; ++i) {
    int above = 0;
    for (int j = 0; j < kLanes; ++j) above += lane[j] > lane[i];
    if (above < k && (bound < 0 || lane[i] < bound)) bound = lane[i];
  }
  return bound;
}

/// Offers keys [key, key + count) of weights [count] to a row's best.
inline void offer(const TopK& top, const float* weights, std::int64_t count, std::int64_t key) {
  float bound = top.entry();
  bool inclusive = false;  // a bound taken from these weights themselves: those equal to it may belong
  if (bound < 0) {
    bound = kth_bound(weights, count, top.capacity);
    inclusive = true;
  }
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const std::int64_t here = smaller(kLanes, count - i);
    const Vf w = here == kLanes ? load(weights + i) : load_first(weights + i, here);
    std::uint32_t hits = bits_of(inclusive ? greater_equal(w, splat(bound)) : greater(w, splat(bound)));
    if (here < kLanes) hits &= (1u << here) - 1;
    while (hits != 0) {
      const int lane = __builtin_ctz(hits);
      hits &= hits - 1;
      const float candidate = weights[i + lane];
      if (candidate > top.entry()) top.insert(candidate, key + i + lane);
    }
    if (top.entry() >= bound) {
      bound = top.entry();
      inclusive = false;
    }
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
  return reduce_add(add(sum, load_first(weights + i, count - i)));
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
