// The weights of a block of rows for a KV block. Each panel takes the best variant of score_microkernel, or
// goes by way of memory.
#pragma once

#include "attention/kernels/forward/matrix_keys.hpp"
#include "attention/kernels/softmax/softmax.hpp"

namespace heed::detail::HEED_ISA {

/// A variant of score_microkernel, and the number of rows of its tiles.
struct ScoreMicrokernel {
  decltype(&score_microkernel<ScoreTraits{}, F32Format, kTileRows, kPanelVectors>) score;
  std::int64_t height;
};

/// The variant for whole panels, depending on whether shifts move.
template <class Format, bool kStatistics, bool kCandidates, std::int64_t kHeight>
ScoreMicrokernel whole_microkernel_of(const TaskState& state) {
  return {state.tracks_maxima ? score_microkernel<ScoreTraits{true, kStatistics, false, kCandidates}, Format,
                                                  kHeight, kPanelVectors>
                              : score_microkernel<ScoreTraits{false, kStatistics, false, kCandidates}, Format,
                                                  kHeight, kPanelVectors>,
          kHeight};
}

/// The variant that adds a decay. Its scores have no bound, so shifts move.
template <class Format, Decay kDecay, std::int64_t kHeight>
ScoreMicrokernel decayed_microkernel_of(const TaskState& state) {
  constexpr ScoreTraits kPlain = {true, false, false, false, true, kDecay};
  constexpr ScoreTraits kStatistics = {true, true, false, false, true, kDecay};
  return {state.keeps_statistics ? score_microkernel<kStatistics, Format, kHeight, kPanelVectors>
                                 : score_microkernel<kPlain, Format, kHeight, kPanelVectors>,
          kHeight};
}

/// The variant that a task needs for whole panels. If rows are whole groups (kTall), tiles may be taller.
template <class Format, bool kTall>
ScoreMicrokernel microkernel_for(const TaskState& state) {
  constexpr std::int64_t kHeight = kTall ? Format::kTallRows : kTileRows;
  if (state.adds_decay)
    return state.call.decay.dtype == DType::f64
               ? decayed_microkernel_of<Format, Decay::wide, kHeight>(state)
               : decayed_microkernel_of<Format, Decay::narrow, kHeight>(state);
  if (state.call.top_k > 0) return whole_microkernel_of<Format, true, true, kHeight>(state);
  return state.keeps_statistics ? whole_microkernel_of<Format, true, false, kHeight>(state)
                                : whole_microkernel_of<Format, false, false, kHeight>(state);
}

template <class Format, ScoreTraits kTraits>
ScoreMicrokernel tail_microkernel_of(std::int64_t vectors) {
  return {vectors == 1   ? score_microkernel<kTraits, Format, kTileRows, 1>
          : vectors == 2 ? score_microkernel<kTraits, Format, kTileRows, 2>
                         : score_microkernel<kTraits, Format, kTileRows, 3>,
          kTileRows};
}

/// The same for the last panel of a sequence, which has `vectors` vectors. Tall tiles have 12 accumulators
/// for any number of vectors; they are used if tiles cannot outgrow a shift.
template <class Format, bool kTall>
ScoreMicrokernel tail_microkernel_for(const TaskState& state, std::int64_t vectors) {
  if (state.call.top_k > 0) return tail_microkernel_of<Format, ScoreTraits{true, true, true, true}>(vectors);
  if (state.keeps_statistics) return tail_microkernel_of<Format, ScoreTraits{true, true, true}>(vectors);
  if (state.tracks_maxima) return tail_microkernel_of<Format, ScoreTraits{true, false, true}>(vectors);
  constexpr ScoreTraits kPlain = {false, false, true};
  if constexpr (kTall) {
    if (vectors == 1) return {score_microkernel<kPlain, Format, 12, 1>, 12};
    if (vectors == 2) return {score_microkernel<kPlain, Format, 6, 2>, 6};
  }
  return tail_microkernel_of<Format, kPlain>(vectors);
}

/// Computes weights of `rows` rows from `row` on (`at` in their block) for a panel that all of them may see.
template <class Format, bool kTall>
void score_plain(TaskState& state, std::int64_t row, std::int64_t at, std::int64_t rows,
                 const PanelKeys& panel, const BlockPrefetch& prefetch) {
  const Workspace& w = state.w;
  const std::int64_t vectors = (panel.keys + kLanes - 1) / kLanes;
  const ScoreMicrokernel microkernel = panel.keys == kPanel
                                           ? microkernel_for<Format, kTall>(state)
                                           : tail_microkernel_for<Format, kTall>(state, vectors);
  if (panel.keys != kPanel && rows > 0) count_path(state.call.paths, Path::tail);
  const TileRows tile = tile_rows(state, panel.done);
  for (std::int64_t r = 0; r < rows; r += microkernel.height) {
    float* weights = state.weights + at * kKvBlock + panel.done;
    const ScoreColumn column = {state.queries.data + (row + r) * state.queries.stride,
                                state.queries.stride,
                                panel.data,
                                lanes_of<Format>(w.depth),
                                panel.keys - (vectors - 1) * kLanes,
                                state.call.log2_scale,
                                weights + r * kKvBlock,
                                kKvBlock,
                                prefetch.from(row + r),
                                {state.w.row_decay, panel.decay}};
    r += microkernel.height * microkernel.score(column, tile, row + r, (rows - r) / microkernel.height);
    if (r == rows) break;
    count_path(state.call.paths, Path::outgrown);
    const auto general = microkernel.height == kTileRows ? score_general<Format, kTileRows>
                                                         : score_general<Format, Format::kTallRows>;
    general(state, row + r, panel.key, panel.data, weights + r * kKvBlock, panel.done);
  }
}

/// The same for whole groups, followed by the remaining rows.
template <class Format>
void score_plain_rows(TaskState& state, std::int64_t row, std::int64_t at, std::int64_t rows,
                      const PanelKeys& panel, const BlockPrefetch& prefetch) {
  const std::int64_t tall = rows / kGroupRows * kGroupRows;
  score_plain<Format, true>(state, row, at, tall, panel, prefetch);
  score_plain<Format, false>(state, row + tall, at + tall, rows - tall, panel, prefetch);
}

/// Computes the weights of a block of `rows` rows from `row` on for one panel.
template <class Format>
void score_panel(TaskState& state, std::int64_t row, std::int64_t rows, const PanelKeys& panel,
                 const BlockPrefetch& prefetch) {
  RowGroup* groups = state.w.group + row / kGroupRows;
  const bool is_modified = state.modifies_scores && !(state.adds_decay && panel.keys == kPanel);
  const std::int64_t count = (rows + kGroupRows - 1) / kGroupRows;
  const auto is_plain = [&](const RowGroup& g) {
    return !is_modified && g.started && g.full_begin <= panel.key && g.full_end >= panel.key + panel.keys;
  };
  for (std::int64_t g = 0; g < count;) {
    if (groups[g].begin >= panel.key + kPanel || groups[g].end <= panel.key) {
      ++g;
      continue;
    }
    const std::int64_t at = g * kGroupRows;
    if (is_plain(groups[g])) {
      while (g < count && is_plain(groups[g])) ++g;
      score_plain_rows<Format>(state, row + at, at, smaller(g * kGroupRows, rows) - at, panel, prefetch);
      continue;
    }
    count_path(state.call.paths, Path::masked);
    for (std::int64_t r = at; r < smaller(at + kGroupRows, rows); r += kTileRows)
      score_general<Format, kTileRows>(state, row + r, panel.key, panel.data,
                                       state.weights + r * kKvBlock + panel.done, panel.done);
    groups[g++].started = true;
  }
}

/// Computes the weights of a block of `rows` rows from `row` on for one KV block.
template <class Format>
void score_block(TaskState& state, std::int64_t row, std::int64_t rows, std::int64_t kv_block_key,
                 const KvBlock& kv_block) {
  const std::int64_t depth = Format::kParts * lanes_of<Format>(state.w.depth);
  PanelDecay decay;
  if constexpr (Format::kMatrixTiles) multiply_kv_block<Format>(state, kv_block_key, kv_block.count);
  for (std::int64_t p = 0; p * kPanel < kv_block.count; ++p) {
    const PanelKeys panel = {kv_block.keys + p * kPanel * depth, kv_block_key + p * kPanel,
                             smaller(kPanel, kv_block.count - p * kPanel), p * kPanel, &decay};
    if (state.adds_decay) read_decay(state.call, state.task, state.task.head_begin, panel.key, decay);
    if constexpr (Format::kMatrixTiles)
      matrix_score_panel<Format>(state, row, rows, panel);
    else
      score_panel<Format>(state, row, rows, panel, kv_block.next_keys.from(p * state.padded_rows));
    add_panel_statistics(state, row, rows, panel.key, state.weights + panel.done, panel.keys);
  }
}

}  // namespace heed::detail::HEED_ISA
