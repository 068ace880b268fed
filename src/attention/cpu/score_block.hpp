// The weights of a block of rows for a chunk of keys, by the variant of score_column that suits each panel,
// or by way of memory.
#pragma once

#include "attention/cpu/score.hpp"

namespace heed::detail::HEED_ISA {

/// A variant of score_column, and how many rows its tiles have.
struct TileColumn {
  decltype(&score_column<Column{}, kTileRows, kPanelVectors>) score;
  std::int64_t height;
};

/// Of whole panels, by whether the run's shifts move.
template <bool kObserved, bool kPairs, bool kNoted, std::int64_t kHeight>
TileColumn whole_column_of(const Run& run) {
  return {run.tracked ? score_column<Column{true, kObserved, false, kPairs, kNoted}, kHeight, kPanelVectors>
                      : score_column<Column{false, kObserved, false, kPairs, kNoted}, kHeight, kPanelVectors>,
          kHeight};
}

/// What a run needs of whole panels. Where rows are whole groups (`tall`), pairs take taller tiles.
template <bool kPairs, bool kTall>
TileColumn column_for(const Run& run) {
  constexpr std::int64_t kHeight = kPairs && kTall ? kPairRows : kTileRows;
  if (run.call.top_k > 0) return whole_column_of<true, kPairs, true, kHeight>(run);
  return run.observed ? whole_column_of<true, kPairs, false, kHeight>(run)
                      : whole_column_of<false, kPairs, false, kHeight>(run);
}

template <Column kColumn>
TileColumn tail_column_of(std::int64_t vectors) {
  return {vectors == 1   ? score_column<kColumn, kTileRows, 1>
          : vectors == 2 ? score_column<kColumn, kTileRows, 2>
                         : score_column<kColumn, kTileRows, 3>,
          kTileRows};
}

/// The same for the last panel of a sequence, of `vectors` vectors. Tall tiles have 12 accumulators for any
/// number of vectors; they are for runs whose tiles cannot outgrow a shift.
template <bool kPairs, bool kTall>
TileColumn tail_column_for(const Run& run, std::int64_t vectors) {
  if (run.call.top_k > 0) return tail_column_of<Column{true, true, true, kPairs, true}>(vectors);
  if (run.observed) return tail_column_of<Column{true, true, true, kPairs}>(vectors);
  if (run.tracked) return tail_column_of<Column{true, false, true, kPairs}>(vectors);
  constexpr Column kPlain = {false, false, true, kPairs};
  if constexpr (kTall) {
    if (vectors == 1) return {score_column<kPlain, 12, 1>, 12};
    if (vectors == 2) return {score_column<kPlain, 6, 2>, 6};
  }
  return tail_column_of<kPlain>(vectors);
}

/// A panel of a chunk: `keys` keys from `key` on.
struct PanelKeys {
  const float* data;
  std::int64_t key, keys;
  std::int64_t done;  ///< keys of the chunk before it
};

/// Weights of `rows` rows from `row` on (`at` in their block) for a panel that is allowed for all of them.
template <bool kPairs, bool kTall>
void score_plain(Run& run, std::int64_t row, std::int64_t at, std::int64_t rows, const PanelKeys& panel,
                 const Upcoming& upcoming) {
  const Work& w = run.w;
  const std::int64_t ldq = run.queries.stride;
  const std::int64_t vectors = (panel.keys + kLanes - 1) / kLanes;
  const std::int64_t last_keys = panel.keys - (vectors - 1) * kLanes;
  const TileColumn column =
      panel.keys == kPanel ? column_for<kPairs, kTall>(run) : tail_column_for<kPairs, kTall>(run, vectors);
  if (panel.keys != kPanel && rows > 0) count_path(run.call.paths, Path::tail);
  for (std::int64_t r = 0; r < rows; r += column.height) {
    float* weights = w.weights + at * kChunk + panel.done;
    r += column.height * column.score(run.queries.data + (row + r) * ldq, ldq, panel.data,
                                      kPairs ? (w.depth + 1) / 2 : w.depth, w.rows, row + r,
                                      (rows - r) / column.height, weights + r * kChunk, kChunk, last_keys,
                                      kPairs ? run.call.scale : 1.0f, upcoming.from(row + r));
    if (r == rows) break;
    count_path(run.call.paths, Path::outgrown);
    const auto general = column.height == kTileRows ? score_general<kTileRows> : score_general<kPairRows>;
    general(run, row + r, panel.key, panel.data, weights + r * kChunk, panel.done);
  }
}

/// The same for whole groups, and then for what is left.
template <bool kPairs = kHasPairs>
void score_plain_rows(Run& run, std::int64_t row, std::int64_t at, std::int64_t rows, const PanelKeys& panel,
                      const Upcoming& upcoming) {
  const std::int64_t tall = rows / kGroupRows * kGroupRows;
  if constexpr (kPairs) {
    if (!run.pairs) return score_plain_rows<false>(run, row, at, rows, panel, upcoming);
  }
  score_plain<kPairs, true>(run, row, at, tall, panel, upcoming);
  score_plain<kPairs, false>(run, row + tall, at + tall, rows - tall, panel, upcoming);
}

/// Weights of a block of `rows` rows from `row` on for one panel.
inline void score_panel(Run& run, std::int64_t row, std::int64_t rows, const PanelKeys& panel,
                        const Upcoming& upcoming) {
  Group* groups = run.w.group + row / kGroupRows;
  note_from(run, panel.done);
  const std::int64_t count = (rows + kGroupRows - 1) / kGroupRows;
  const auto is_plain = [&](const Group& g) {
    return !run.transforms && g.started && g.inner_low <= panel.key && g.inner_high >= panel.key + panel.keys;
  };
  for (std::int64_t g = 0; g < count;) {
    if (groups[g].low >= panel.key + kPanel || groups[g].high <= panel.key) {
      ++g;
      continue;
    }
    const std::int64_t at = g * kGroupRows;
    if (is_plain(groups[g])) {
      while (g < count && is_plain(groups[g])) ++g;
      score_plain_rows(run, row + at, at, smaller(g * kGroupRows, rows) - at, panel, upcoming);
      continue;
    }
    count_path(run.call.paths, Path::masked);
    for (std::int64_t r = at; r < smaller(at + kGroupRows, rows); r += kTileRows)
      score_general<kTileRows>(run, row + r, panel.key, panel.data, run.w.weights + r * kChunk + panel.done,
                               panel.done);
    groups[g++].started = true;
  }
}

/// Weights of a block of `rows` rows from `row` on for one chunk.
inline void score_block(Run& run, std::int64_t row, std::int64_t rows, std::int64_t chunk_key,
                        const Chunk& chunk) {
  const std::int64_t depth = run.pairs ? (run.w.depth + 1) / 2 : run.w.depth;
  for (std::int64_t p = 0; p * kPanel < chunk.count; ++p) {
    const PanelKeys panel = {chunk.keys + p * kPanel * depth, chunk_key + p * kPanel,
                             smaller(kPanel, chunk.count - p * kPanel), p * kPanel};
    score_panel(run, row, rows, panel, chunk.next_keys.from(p * run.padded_rows));
    observe_panel(run, row, rows, panel.key, panel.done, panel.keys);
  }
}

}  // namespace heed::detail::HEED_ISA
