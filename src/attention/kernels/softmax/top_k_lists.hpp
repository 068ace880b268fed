// Top-k lists of kLanes rows side by side; a level of all lists is one vector. An entry is inserted into
// every list at once, with a minimum and a maximum per level, whatever each row's weight is. So there are no
// branches to mispredict.
#pragma once

#include "attention/kernels/shared/memory.hpp"
#include "attention/kernels/shared/tiling.hpp"

namespace heed::detail::HEED_ISA {

/// The least weight that counts. Forbidden keys have weight 0; complete_top distinguishes allowed keys of
/// smaller weights.
inline constexpr float kLeastWeight = 0x1p-126f;
/// Entry threshold of a list that has room: the largest float below kLeastWeight.
inline constexpr float kAnyWeight = kLeastWeight - 0x1p-149f;
inline constexpr float kNoWeight = -1.0f;                       // marks an empty entry
inline constexpr int kLevelsAtOnce = kRegisters >= 32 ? 8 : 4;  // list levels that registers hold

/// Weights and keys in columns [][kLanes]; an entry of kLanes rows is one vector. Keys count within the
/// segment; the vectors hold their bits.
struct CandidateColumns {
  float* weight;
  std::int32_t* key;

  CandidateColumns from(std::int64_t entry) const { return {weight + entry * kLanes, key + entry * kLanes}; }
};

inline CandidateColumns take_columns(Memory& memory, std::int64_t count) {
  return {memory.floats(count), memory.take<std::int32_t>(count)};
}

/// Columns of this length are inserted before the next panel, which adds at most kPanel entries.
inline constexpr int kLongColumn = 8;
inline constexpr int kMostWaiting = kLongColumn + kPanel;

/// Candidates of a group's rows that wait to be inserted, in the order of their keys.
struct WaitingCandidates {
  CandidateColumns columns;  ///< [kGroupRows / kLanes][kMostWaiting][kLanes]: a column per row
  std::int64_t* count;       ///< [kGroupRows / kLanes]: entries of the longest of kLanes columns
};

inline WaitingCandidates take_waiting(Memory& memory, bool wanted) {
  const std::int64_t rows = wanted ? kGroupRows : 0;
  return {take_columns(memory, rows * kMostWaiting), memory.take<std::int64_t>(rows / kLanes)};
}

inline void clear(const CandidateColumns& columns, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) store(columns.weight + i * kLanes, splat(kNoWeight));
}

/// Drops entries too light to count; shifts that moved may have scaled weights down.
inline void drop_light_entries(const CandidateColumns& columns, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const Vf x = load(columns.weight + i * kLanes);
    store(columns.weight + i * kLanes, select(greater(x, splat(kAnyWeight)), x, splat(kNoWeight)));
  }
}

/// Inserts `count` entries of each column into the list beside it, in order. Lists are sorted by descending
/// weight; of equal weights, the earlier entry comes first. An entry takes the place of the first smaller
/// weight, and the entries from there on move down. `moved` [count][kLanes] carries what passes from one
/// group of levels to the next.
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

/// The same for weights alone, and for empty lists: keeps the largest of `weights`, lane by lane. Destroys
/// `weights`.
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
