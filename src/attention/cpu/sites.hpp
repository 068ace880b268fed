// Where rows stand, and which keys their position leaves to them.
#pragma once

#include "attention/cpu/call.hpp"
#include "attention/cpu/pack.hpp"

namespace heed::detail::HEED_ISA {

using cpu::Call;
using cpu::kOpen;
using cpu::Task;

/// One query row of a task: which it is, where it stands, and the keys [low, high) of its segment that
/// causality, window and lengths allow.
struct Site {
  std::int64_t head, index, position, low, high;
};

/// The keys that the masks by position leave to row i: causal, window, and the segment's length.
inline Site site_of(const Call& call, const Task& task, std::int64_t head, std::int64_t index) {
  Site site;
  site.head = head;
  site.index = index;
  site.position = index + task.position_offset;
  const std::int64_t keys = task.key_end - task.key_begin;
  site.low = 0;
  site.high = keys;
  if (call.causal) site.high = smaller(site.high, site.position + 1);
  if (call.window_right != kOpen) site.high = smaller(site.high, site.position + call.window_right + 1);
  if (call.window_left != kOpen) site.low = larger(0, site.position - call.window_left);
  site.high = larger(0, site.high);
  site.low = smaller(site.low, keys);
  return site;
}

/// kGroupRows rows of a task (the last group may have fewer): the keys that any of them, and that all of
/// them, may see.
struct Group {
  std::int64_t low, high;              // of any
  std::int64_t inner_low, inner_high;  // of all
  bool started;                        // no row waits for its first shift
};

inline Group group_of(const Site* sites, std::int64_t rows, bool started) {
  Group g = {INT64_MAX, 0, 0, INT64_MAX, started};
  for (std::int64_t r = 0; r < rows; ++r) {
    const Site& site = sites[r];
    if (site.low < site.high) {
      g.low = smaller(g.low, site.low);
      g.high = larger(g.high, site.high);
    }
    g.inner_low = larger(g.inner_low, site.low);
    g.inner_high = smaller(g.inner_high, site.high);
  }
  return g;
}

/// Keys [begin, end).
struct KeyRange {
  std::int64_t begin, end;
};

/// The keys of a chunk, counted from its first, whose weights are computed for a group: from the panel of the
/// first key that any of its rows may see to the vector of the last. Among them a key that a row may not see
/// weighs 0; weights of the others are whatever lay there before.
inline KeyRange written_keys(const Group& group, std::int64_t chunk_key, std::int64_t count) {
  const std::int64_t low = larger(0, group.low - chunk_key);
  const std::int64_t high = smaller(count, group.high - chunk_key);
  if (low >= high) return {0, 0};
  return {low / kPanel * kPanel, round_up(high, kLanes)};
}

}  // namespace heed::detail::HEED_ISA
