// The rows of a task: their positions, and the keys that position allows each row and groups of rows to see.
#pragma once

#include "attention/kernels/shared/arguments.hpp"
#include "attention/kernels/shared/tiling.hpp"
#include "attention/problem/visible_keys.hpp"

namespace heed::detail::HEED_ISA {

using cpu::Arguments;
using cpu::Task;

/// One query row of a task: its index, its position, and the keys [key_begin, key_end) of its segment that
/// causality, window and lengths allow. Masks may narrow it (masked_rows.hpp); it then describes one KV block
/// only. `visible`, if not null, then tells for each of these keys, from visible_key on, whether it is
/// allowed.
struct QueryRow {
  std::int64_t head, index, position, key_begin, key_end;
  const std::uint8_t* visible;
  std::int64_t visible_key;
};

inline KeyPositions keys_of(const Task& task) { return {task.key_end - task.key_begin, task.positions}; }

/// Returns row i, with the keys that causality, window and the segment's length allow it.
inline QueryRow query_row_of(const Arguments& call, const Task& task, std::int64_t head, std::int64_t index) {
  QueryRow query_row;
  query_row.head = head;
  query_row.index = index;
  query_row.position = index + task.position_offset;
  const KeyRange visible = visible_keys(call, query_row.position, keys_of(task));
  query_row.key_begin = visible.begin;
  query_row.key_end = visible.end;
  query_row.visible = nullptr;
  query_row.visible_key = 0;
  return query_row;
}

/// gaps [kPanel] = position - p_j for a panel's keys from `key` on.
inline void position_gaps(const KeyPositions& keys, std::int64_t position, std::int64_t key,
                          float (&gaps)[kPanel]) {
  if (keys.positions != nullptr) {
    for (std::int64_t k = 0; k < kPanel; ++k)
      gaps[k] = key + k < keys.keys ? static_cast<float>(position - keys.positions[key + k]) : 0.0f;
    return;
  }
  const Vf first = splat(static_cast<float>(position - key));
#pragma GCC unroll 4
  for (int v = 0; v < kPanelVectors; ++v)
    store(gaps + v * kLanes, sub(first, add(lane_numbers(), splat(static_cast<float>(v * kLanes)))));
}

/// The keys of a panel that a row may see, counted from the panel's first key. Floats hold such small numbers
/// exactly.
struct PanelRange {
  float low, high;

  /// The mask of vector `v` of the panel.
  [[nodiscard]] HEED_INLINE Mask lanes(int v) const {
    const Vf lane = add(lane_numbers(), splat(static_cast<float>(v * kLanes)));
    return both(greater_equal(lane, splat(low)), greater(splat(high), lane));
  }
};
HEED_INLINE PanelRange range_in_panel(const QueryRow& row, std::int64_t key) {
  return {static_cast<float>(larger(0, smaller(kPanel, row.key_begin - key))),
          static_cast<float>(larger(0, smaller(kPanel, row.key_end - key)))};
}

/// kGroupRows rows of a task (the last group may have fewer): the keys that any of them, and that all of
/// them, may see.
struct RowGroup {
  std::int64_t begin, end;            // any row may see these
  std::int64_t full_begin, full_end;  // all rows may see these
  bool started;                       // no row waits for its first shift
  bool scattered;                     // some row's keys are not a range
};

inline RowGroup group_of(const QueryRow* query_rows, std::int64_t rows, bool started) {
  RowGroup g = {INT64_MAX, 0, 0, INT64_MAX, started, false};
  for (std::int64_t r = 0; r < rows; ++r) {
    const QueryRow& query_row = query_rows[r];
    if (query_row.key_begin < query_row.key_end) {
      g.begin = smaller(g.begin, query_row.key_begin);
      g.end = larger(g.end, query_row.key_end);
    }
    g.full_begin = larger(g.full_begin, query_row.key_begin);
    g.full_end = smaller(g.full_end, query_row.key_end);
    g.scattered = g.scattered || query_row.visible != nullptr;
  }
  if (g.scattered) g.full_end = 0;
  return g;
}

/// The keys of a KV block, counted from its first key, whose weights are computed for a group. They reach
/// from the panel of the first key that any of its rows may see to the vector of the last. Among them, a key
/// that its row may not see has weight 0. Weights outside of them are uninitialised, and those that
/// keep_candidates() leaves out.
inline KeyRange written_keys(const RowGroup& group, std::int64_t kv_block_key, std::int64_t count) {
  const std::int64_t low = larger(0, group.begin - kv_block_key);
  const std::int64_t high = smaller(count, group.end - kv_block_key);
  if (low >= high) return {0, 0};
  return {low / kPanel * kPanel, round_up(high, kLanes)};
}

}  // namespace heed::detail::HEED_ISA
