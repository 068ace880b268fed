// Lists of the most attended keys of kLanes rows side by side: a level of all of them is a vector. An entry
// goes into every list at once: a minimum and a maximum a level, whatever each row's weight is, with no guess
// for the processor to get wrong.
#pragma once

#include "attention/cpu/kernel/memory.hpp"
#include "attention/cpu/kernel/tiling.hpp"

namespace heed::detail::HEED_ISA {

/// Weights that count: a forbidden key has a weight of 0, and allowed ones that small are told apart in
/// complete_top.
inline constexpr float kLeastWeight = 0x1p-126f;
/// What weights must exceed to enter a list that has room: the largest float below kLeastWeight.
inline constexpr float kAnyWeight = kLeastWeight - 0x1p-149f;
inline constexpr float kNoWeight = -1.0f;                       // of entries that are not there
inline constexpr int kLevelsAtOnce = kRegisters >= 32 ? 8 : 4;  // levels of lists that registers hold

/// Weights and keys, an entry of kLanes rows a vector: [][kLanes]. Keys are counted within the segment;
/// vectors hold their bits.
struct CandidateColumns {
  float* weight;
  std::int32_t* key;

  CandidateColumns from(std::int64_t entry) const { return {weight + entry * kLanes, key + entry * kLanes}; }
};

inline CandidateColumns take_columns(Memory& memory, std::int64_t count) {
  return {memory.floats(count), memory.take<std::int32_t>(count)};
}

inline void clear(const CandidateColumns& columns, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) store(columns.weight + i * kLanes, splat(kNoWeight));
}

/// Drops entries that weigh too little to count: shifts that moved may have left less.
inline void drop_light_entries(const CandidateColumns& columns, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const Vf x = load(columns.weight + i * kLanes);
    store(columns.weight + i * kLanes, select(greater(x, splat(kAnyWeight)), x, splat(kNoWeight)));
  }
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

}  // namespace heed::detail::HEED_ISA
