// Reports on attention calls: the data that people need to look inside a call.
//
// A report holds O(L) numbers per head unless a piece of the matrix is requested. Its numbers are as exact
// for 100,000 tokens as for ten. All weights are p_ij of heed/attention/attention.hpp: before dropout. With a
// sink, the weights of a row sum to less than 1.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/attention/attention.hpp"
#include "heed/export.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// A piece of the weights: rows [row_begin, row_end) against keys [key_begin, key_end).
struct TileRange {
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;
  std::int64_t key_begin = 0;
  std::int64_t key_end = 0;
  std::int64_t batch = -1;  ///< only this batch entry; -1: all
  std::int64_t head = -1;   ///< only this query head; -1: all
};

/// The weights of a piece of the matrix.
struct WeightTile {
  TileRange range;
  Tensor weights;  ///< [B, H, rows, keys], f64 for f64 inputs, otherwise f32; B or H is 1 if the range
                   ///< chooses one
  Tensor allowed;  ///< bool, same shape: false if a mask forbids the key (weight 0)
};

/// Computes any piece of the weights, p_ij = exp(s_ij - lse_i), from query, key and the lse of an earlier
/// attention() call. lse is [B, H, Lq], f32 or f64, without the axes that query lacks. The cost is
/// proportional to the piece. Scores are computed in f64. Options that request results (need, top_k, …) are
/// ignored. Throws Error (invalid_argument) as attention() does, and for a range outside the matrix;
/// out_of_memory if the tile does not fit.
[[nodiscard]] HEED_API WeightTile attention_tile(const TensorView& query, const TensorView& key,
                                                 const AttentionOptions& options, const TensorView& lse,
                                                 const TileRange& range);

/// Attention patterns of heads. docs/heads.md has the rules, thresholds and sources.
enum class HeadPattern {
  previous_token,
  next_token,
  self,
  induction,
  duplicate_token,
  same_token,
  separators,
  first_token_sink,
  local,
  vertical,
  uniform,
  fixed_offset
};
/// The number of patterns.
inline constexpr int kHeadPatterns = 12;
/// "previous-token", "next-token", "self", "induction", "duplicate-token", "same-token", "separators",
/// "first-token sink", "local", "vertical", "uniform", "fixed offset".
[[nodiscard]] HEED_API std::string_view name_of(HeadPattern pattern) noexcept;
/// The lowest score at which a head gets this name. A first-token sink also names a head that has no other
/// name, from 0.4 on.
[[nodiscard]] HEED_API double threshold_of(HeadPattern pattern) noexcept;

/// Whether a token is a separator: a special token (`[SEP]`, `[CLS]`, `</s>`, `<|…|>` and the like), or
/// Unicode punctuation only. White space that a tokenizer puts before the token is ignored.
[[nodiscard]] HEED_API bool is_separator(std::string_view token) noexcept;

/// The fewest rows that a head name must be based on.
inline constexpr std::int64_t kLeastRows = 3;

/// A score as numerator and denominator, so that scores of several texts can be added.
struct PatternShare {
  double part = 0;
  double whole = 0;
  /// part / whole, from 0 to 1; NaN if whole is 0.
  [[nodiscard]] HEED_API double score() const noexcept;
};

/// How well a pattern fits: by all weights, and by the weights without the first key.
struct PatternScore {
  HeadPattern pattern = HeadPattern::uniform;
  double score = 0;       ///< from 0 to 1; NaN if no row applies (induction without tokens or ids)
  double rest_score = 0;  ///< score without the first key's weight; NaN for the sink pattern
  bool named = false;     ///< there are enough rows and a score reaches the threshold
  std::int64_t rows = 0;  ///< rows that have matching keys and at least two allowed keys
  PatternShare all{}, rest{};
  std::int64_t offset = 0;  ///< of fixed_offset: j - p_i of its keys; 0: no row has such a key
};

/// A pattern that a head shows, or its runner-up.
struct HeadName {
  HeadPattern pattern = HeadPattern::uniform;
  double score = 0;
  bool of_rest = false;     ///< the score ignores the weight on the first key
  std::int64_t offset = 0;  ///< of fixed_offset: j - p_i
};
/// The pattern's name; for fixed_offset "2 back" or "3 ahead".
[[nodiscard]] HEED_API std::string name_of(const HeadName& name);

/// Summary of one head of one batch entry. Means are over rows that see a key and have no NaN weights; NaN if
/// there are no such rows.
struct HeadSummary {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t rows = 0;      ///< rows with at least one allowed key, without NaN rows
  std::int64_t nan_rows = 0;  ///< rows whose weights are NaN
  std::int64_t choices = 0;   ///< those of `rows` with at least two allowed keys; scores use these
  double entropy = 0;         ///< nats
  double max_weight = 0;
  double distance = 0;                       ///< mean of |p_i - j|, in positions
  double first = 0;                          ///< sink mass: weight on the first key (of the row's segment)
  double self = 0;                           ///< weight on the key at p_i
  double previous = 0;                       ///< weight on the key at p_i - 1
  double next = 0;                           ///< weight on the key at p_i + 1
  double induction = 0;                      ///< over rows with an earlier copy of their token; NaN if none
  std::vector<PatternScore> patterns;        ///< all of them, in the order of HeadPattern
  std::vector<std::int64_t> most_received;   ///< keys, the most attended first
  std::vector<double> most_received_weight;  ///< the weight that each received
  /// The names that the head has earned, the best first. A name that a better one implies is left out.
  [[nodiscard]] HEED_API std::vector<HeadName> names() const;
  /// names()[0] in words; "mixed" if there is none, "too few rows" if choices < kLeastRows.
  [[nodiscard]] HEED_API std::string name() const;
  /// The runner-up to the name: the second earned name, else the pattern nearest to its threshold. nullopt if
  /// too few rows support it.
  [[nodiscard]] HEED_API std::optional<HeadName> runner_up() const;
};

/// Merges the summaries of several texts; texts[t] has the same heads in the same order for each t. Means are
/// weighted by the rows of each text; scores are computed over all rows together. most_received is empty,
/// because keys of different texts do not correspond. Throws Error (invalid_argument) if there is no text or
/// the heads differ.
[[nodiscard]] HEED_API std::vector<HeadSummary> merge_summaries(
    std::span<const std::vector<HeadSummary>> texts);

/// One requested result and its cost.
struct CostLine {
  std::string what;        ///< "plain forward", "lse, entropy, distance, top-5", "received", …
  double seconds = 0;      ///< time taken or added; NaN if not measured separately
  double times = 0;        ///< `seconds` in units of a plain forward; NaN if that takes less than 1 ms
  double bytes = 0;        ///< memory taken or added, including results
  bool estimated = false;  ///< from a sample of the rows (plain forward) or from sizes (full matrix)
  bool made = true;        ///< false: not computed, only estimated (full matrix); seconds is 0
};

/// The contents of a report besides the row summaries, which are always included.
struct ReportOptions {
  std::int64_t top_k = 5;  ///< keys per row; 0 is off
  bool received = true;
  /// Size of the finest level of the map: at most 1024 x 1024 bins by default, and at most Lq x Lk. 0 x 0
  /// leaves the map out.
  MapSize map{1024, 1024};
  std::int64_t most_received = 8;  ///< keys in HeadSummary::most_received
  /// Includes the whole matrix if Lq * Lk is at most this; 0: never. Pages use the limit kFullWeightsCells.
  std::int64_t full_weights_cells = 0;
  std::vector<TileRange> tiles{};  ///< tiles to include at full resolution
  /// Rows to report, ascending; empty: all. Only these rows are computed. For other rows, the results of
  /// AttentionResult are NaN (top_k_index: -1). Left out are received, the map, tiles, the full matrix, the
  /// summaries, and first, self, previous, next and induction.
  std::vector<std::int64_t> rows{};
  std::vector<std::string> query_tokens{};  ///< one per row, or empty; UTF-8
  std::vector<std::string> key_tokens{};    ///< one per key; empty if they equal the query's
  /// Ids of the same tokens, or empty. Tokens are copies of each other if their ids are equal; without ids,
  /// if their texts are equal.
  std::vector<std::int64_t> query_token_ids{};
  std::vector<std::int64_t> key_token_ids{};
  bool cost = false;  ///< also time a plain forward (a sample, if it is long)
  /// Replaces attention(), for a call spread over machines. Returns all results that the options request; row
  /// results have four axes; the output may be left out. Must be empty if `rows` is set. The report then has
  /// no cost of a forward pass.
  std::function<AttentionResult(const AttentionOptions& options)> attend{};
  /// Receives the current task and the share done, 0 to 1, from time to time. Called from any thread, one
  /// call at a time.
  std::function<void(std::string_view what, double share)> progress{};
};

/// A page contains the full weights if a head has at most this many cells.
inline constexpr std::int64_t kFullWeightsCells = 4'000'000;

/// A layer of a model. The head axis of a report holds the heads of all layers, one layer after another.
struct LayerHeads {
  std::string name;        ///< "0", "1", …; for several kinds of layers "encoder 0", "decoder 0", "cross 0"
  std::int64_t heads = 0;  ///< at least 1
};

/// A report. B and H are always present, also for inputs of rank 2 or 3. Row and key numbers are f64 for f64
/// inputs, otherwise f32. Results that were not requested are empty (shape [0]).
struct AttentionReport {
  std::int64_t batch = 0, heads = 0, kv_heads = 0, queries = 0, keys = 0, head_dim = 0, value_dim = 0;
  DType dtype = DType::f32;
  std::string kernel;                         ///< "fused", "reference"
  std::string isa;                            ///< its instruction set
  std::vector<std::string> query_tokens;      ///< Lq of them, or none
  std::vector<std::string> key_tokens;        ///< Lk of them, or none
  std::vector<std::int64_t> query_token_ids;  ///< Lq of them, or none
  std::vector<std::int64_t> key_token_ids;    ///< Lk of them, or none
  /// The layers in the order of their heads, H heads in all; empty for a single call.
  std::vector<LayerHeads> layers;
  /// The call as options of `heed attend`: {"scale", "0.125"}, {"causal", "true"}, {"window", "4,-1"},
  /// {"mask", "bool [1, 1, 7, 7]"} …
  std::vector<std::pair<std::string, std::string>> options;

  Tensor output;     ///< [B, H, Lq, Dv], in the inputs' dtype
  Tensor position;   ///< [B, Lq], i64: p_i, counted within the row's segment
  Tensor key_begin;  ///< [B, Lq], i64: lengths, segments, causal and window allow keys
  Tensor key_end;    ///< [B, Lq], i64: [key_begin, key_end); mask and bias may forbid more. Equal: none.

  Tensor lse, max_score, entropy, distance;       ///< [B, H, Lq], as in AttentionResult
  Tensor max_weight;                              ///< [B, H, Lq]: the largest weight
  Tensor first, self, previous, next, induction;  ///< [B, H, Lq], as in HeadSummary; induction needs tokens
                                                  ///< or ids, and is NaN in rows without an earlier copy
  Tensor received;                                ///< [B, H, Lk]
  Tensor top_k_index, top_k_weight;               ///< [B, H, Lq, K], as in AttentionResult

  /// Levels [B, H, R, C] of sums of weights, f64, the finest first. The finest level has the bins of
  /// AttentionResult::map. Each further level has half as many rows and columns, rounded up: its bin (r, c)
  /// sums bins (2r, 2c) to (2r + 1, 2c + 1) of the level before. The last level is 1 x 1.
  std::vector<Tensor> map;
  WeightTile weights;             ///< the whole matrix, if requested and small enough
  std::vector<WeightTile> tiles;  ///< the requested tiles

  std::vector<HeadSummary> summaries;  ///< B * H summaries, ordered by batch entry, then head
  /// First the plain forward (only with ReportOptions::cost), then the added cost of each requested result,
  /// last the estimate for the full matrix.
  std::vector<CostLine> cost;
};

/// The place of head `head` of the axis H: its layer (-1 without layers) and its number within the layer.
struct HeadPlace {
  std::int64_t layer = -1;
  std::int64_t head = 0;
};
[[nodiscard]] HEED_API HeadPlace place_of(const AttentionReport& report, std::int64_t head) noexcept;
/// "layer 3, head 1"; "head 1" without layers.
[[nodiscard]] HEED_API std::string name_of_head(const AttentionReport& report, std::int64_t head);

/// Joins the reports of a model's layers; the axis H holds the heads of all layers in this order. All reports
/// must have the same rows and keys (batch, Lq, Lk, tokens). A result that one report lacks is left out.
/// Options that differ read "differs by layer". [key_begin, key_end) covers the keys that the row may see in
/// any layer. There is no output and no cost. Throws Error (invalid_argument) for no reports, and for reports
/// that differ.
[[nodiscard]] HEED_API AttentionReport
join_layers(std::vector<std::pair<std::string, AttentionReport>> layers);

/// Element [index…] of an f32 or f64 tensor, such as a report's. Indices are not checked.
[[nodiscard]] inline double number_at(const Tensor& tensor, std::initializer_list<std::int64_t> index) {
  std::int64_t at = 0;
  int axis = 0;
  for (const std::int64_t i : index) at = at * tensor.size(axis++) + i;
  return tensor.dtype() == DType::f64
             ? tensor.values<double>()[static_cast<std::size_t>(at)]
             : static_cast<double>(tensor.values<float>()[static_cast<std::size_t>(at)]);
}

/// Runs attention(query, key, value, options) and builds a report. The options that request results (need,
/// top_k, received_last, map) are ignored. Throws as attention() and attention_tile() do, and
/// invalid_argument if the number of tokens differs from the number of rows or keys.
[[nodiscard]] HEED_API AttentionReport make_report(const TensorView& query, const TensorView& key,
                                                   const TensorView& value,
                                                   const AttentionOptions& options = {},
                                                   const ReportOptions& wanted = {});

/// A picture of the pairs that one head may attend, by causality, window, lengths, segments, boolean and
/// sparse masks. A bias of -inf does not count as a mask.
struct MaskPicture {
  Tensor allowed;            ///< [R, C], f64: allowed share of each bin (bins of AttentionResult::map)
  double allowed_share = 0;  ///< allowed share of all Lq x Lk pairs
  /// Share of pairs in 64 x 64 tiles with an allowed pair, about what a kernel computes.
  double tile_share = 0;
};

/// Uses at most Lq x Lk bins. Throws Error (invalid_argument) as attention() does, and for a batch entry,
/// head or size out of range.
[[nodiscard]] HEED_API MaskPicture mask_picture(const TensorView& query, const TensorView& key,
                                                const AttentionOptions& options, std::int64_t batch,
                                                std::int64_t head, const MapSize& bins);

/// Levels of a map, from `finest` [B, H, R, C] (converted to f64) down to 1 x 1. Each level holds the exact
/// sums, in f64, of 2 x 2 bins of the level before.
[[nodiscard]] HEED_API std::vector<Tensor> pool_map(const TensorView& finest);

/// Sums `finest` [B, H, R, C] exactly, in f64, into fewer bins. They equal the bins of AttentionResult::map
/// of that size if R is the number of queries or a multiple of size.rows, and likewise for C. Throws Error
/// (invalid_argument) for a size below one bin or above R x C.
[[nodiscard]] HEED_API Tensor map_in_bins(const TensorView& finest, const MapSize& size);

}  // namespace heed
