// KV blocks of a cache of codes, by digits. The last rows of a sequence are still floats and are multiplied
// as such, like values whose weights have no digits.
#pragma once

#include "attention/kernels/decode/decode_products.hpp"
#include "attention/kernels/decode/digits.hpp"
#include "attention/kernels/softmax/row_statistics.hpp"
#include "attention/kernels/softmax/softmax.hpp"

namespace heed::detail::HEED_ISA {

/// Scores of up to kTileRows rows from `row` on for keys of a KV block, whose key 0 is key `key` of the
/// segment, from floats.
inline void score_as_floats(const TaskState& state, std::int64_t key, const KeyRange& range, std::int64_t row,
                            std::int64_t rows, BlockScores& scores) {
  const StreamPrefetch nothing = {};
  for (std::int64_t at = range.begin, end = at; at < range.end; at = end) {
    end = smaller(range.end, round_up(at + 1, kPanel));
    alignas(64) float tile[kTileRows][kPanel];
    PassPrefetch prefetch(nothing, 0, 0, 1, 2);
    const bool in_range = decode_scores_of<F32Format, FloatRows<DType::f32>>(rows)(
        mixed_rows(state, true, key + at, end - at), end - at, decode_queries(state, row), tile, 0, prefetch);
    scores.in_range[row / kTileRows] &= in_range;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t k = at; k < end; ++k) *scores.row(row + r, k) = tile[r][k - at];
  }
}

/// Computes the weights of all rows for KV block `kv_block` of `block`, which begins `start` keys after it.
template <RowFormat kFormat>
void weights_by_digits(TaskState& state, const DecodeBlock& block, std::int64_t start,
                       const KeyRange& kv_block, float* weights) {
  BlockScores scores;
  for (bool& in_range : scores.in_range) in_range = true;
  const std::int64_t key = block.key + start;
  const KeyRange keys = {kv_block.begin - start, kv_block.end - start};
  const std::int64_t floats = keys.begin + coded_keys(state, key + keys.begin, keys.end - keys.begin);
  for (std::int64_t at = keys.begin; at < keys.end; at += kPanel)
    for (std::int64_t r = 0; r < state.padded_rows; ++r)
      for (std::int64_t k = 0; k < kPanel; k += kLanes) store(scores.row(r, at) + k, zero());
  LinePrefetch prefetch(block.keys, kv_block.begin + kDigitValues);
  score_coded_keys<kFormat>(state, key, {keys.begin, floats}, scores, prefetch);
  for (std::int64_t row = 0; row < state.rows && floats < keys.end; row += kTileRows)
    score_as_floats(state, key, {floats, keys.end}, row, smaller(kTileRows, state.rows - row), scores);
  for (std::int64_t at = keys.begin; at < keys.end; at += kPanel) {
    for (std::int64_t row = 0; row < state.padded_rows; row += kTileRows)
      softmax_scores(state, row, key + at,
                     reinterpret_cast<float(&)[kTileRows][kPanel]>(scores.panels[at / kPanel][row]),
                     weights + row * kKvBlock + at, at, !scores.in_range[row / kTileRows]);
    add_panel_statistics(state, 0, state.padded_rows, key + at, weights + at, smaller(kPanel, keys.end - at));
  }
}

/// Adds the weights of all rows times the values of the same KV block to the partial sums.
template <RowFormat kFormat>
void add_values_by_digits(const TaskState& state, const DecodeBlock& block, std::int64_t start,
                          const KeyRange& kv_block, const float* weights) {
  const std::int64_t key = block.key + start;
  const KeyRange keys = {kv_block.begin - start, kv_block.end - start};
  const std::int64_t floats = keys.begin + coded_keys(state, key + keys.begin, keys.end - keys.begin);
  LinePrefetch prefetch(block.values, kv_block.begin + kDigitValues);
  add_coded_values<kFormat>(state, key, {keys.begin, floats}, weights, prefetch,
                            [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
                              add_values_of_rows<1>(state, mixed_rows(state, false, key + begin, end - begin),
                                                    block, {start + begin, start + end}, weights, row, 2);
                            });
  if (floats < keys.end)
    add_rows_of_values(state, mixed_rows(state, false, key + floats, keys.end - floats), block,
                       {start + floats, kv_block.end}, weights);
}

}  // namespace heed::detail::HEED_ISA
