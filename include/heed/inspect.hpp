// Looking inside attention: everything there is to say about a call, gathered for a person to look at.
//
// A report holds no more than O(L) numbers a head unless a piece of the matrix is asked for: what it says of
// 100,000 tokens is as exact as what it says of ten. All weights are p_ij of heed/attention.hpp (before
// dropout; with a sink they sum to less than 1).
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

#include "heed/attention.hpp"
#include "heed/export.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// A piece of the weights: rows [row_begin, row_end) against keys [key_begin, key_end).
struct TileRange {
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;
  std::int64_t key_begin = 0;
  std::int64_t key_end = 0;
  std::int64_t batch = -1;  ///< of this entry only; -1: all
  std::int64_t head = -1;   ///< of this query head only; -1: all
};

/// The weights of a piece of the matrix.
struct WeightTile {
  TileRange range;
  Tensor weights;  ///< [B, H, rows, keys], f64 for f64 inputs and f32 for all others; B or H is 1 where one
                   ///< is chosen
  Tensor allowed;  ///< the same shape, bool: false where a mask forbids the key (its weight is 0)
};

/// Any piece of the weights, p_ij = exp(s_ij - lse_i), from query, key and the lse that a call of attention()
/// gave ([B, H, Lq], f32 or f64, or without the axes that query lacks): its cost is that of the piece. Scores
/// are computed in f64. What options ask for (need, top_k, …) is not read. Throws Error (invalid_argument) as
/// attention() does, and for a range that does not lie within the matrix; out_of_memory where the tile does
/// not fit.
[[nodiscard]] HEED_API WeightTile attention_tile(const TensorView& query, const TensorView& key,
                                                 const AttentionOptions& options, const TensorView& lse,
                                                 const TileRange& range);

/// What a head may look like; the rules, the thresholds and their sources stand in docs/heads.md.
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
  uniform
};
inline constexpr int kHeadPatterns = 11;
/// "previous-token", "next-token", "self", "induction", "duplicate-token", "same-token", "separators",
/// "first-token sink", "local", "vertical", "uniform".
[[nodiscard]] HEED_API std::string_view name_of(HeadPattern pattern) noexcept;
/// The least score that earns the name.
[[nodiscard]] HEED_API double threshold_of(HeadPattern pattern) noexcept;

/// Whether a token separates others: a special one ([SEP], [CLS], </s>, <|…|> and their like), or one of
/// Unicode punctuation alone, but for the white space that a tokenizer writes before it.
[[nodiscard]] HEED_API bool is_separator(std::string_view token) noexcept;

/// Rows that a name needs behind it.
inline constexpr std::int64_t kLeastRows = 3;

/// A score as a part of a whole, so that those of several texts add up.
struct PatternShare {
  double part = 0;
  double whole = 0;
  /// Within 0 to 1; NaN where the whole is 0.
  [[nodiscard]] HEED_API double score() const noexcept;
};

/// How well a rule fits, at two looks: over all weights, and over those beside the first key.
struct PatternScore {
  HeadPattern pattern = HeadPattern::uniform;
  double score = 0;       ///< from 0 to 1; NaN where no row can say (induction without tokens or ids)
  double rest_score = 0;  ///< of the weight that is not on the first key; NaN for the sink itself
  bool named = false;     ///< enough rows, and one of the two reaches the threshold
  std::int64_t rows = 0;  ///< that have such keys, and a choice
  PatternShare all{}, rest{};
};

/// A pattern that a head shows, or the one that it shows next to that.
struct HeadName {
  HeadPattern pattern = HeadPattern::uniform;
  double score = 0;
  bool of_rest = false;  ///< the score is that of the weight beside the first key
};

/// One head of one batch entry. Means are over its rows that see a key and hold numbers; NaN where there is
/// none.
struct HeadSummary {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t rows = 0;      ///< rows with at least one allowed key, NaN rows not counted
  std::int64_t nan_rows = 0;  ///< rows whose weights are NaN
  std::int64_t choices = 0;   ///< those of `rows` with two allowed keys or more: they back the scores
  double entropy = 0;         ///< nats
  double max_weight = 0;
  double distance = 0;                 ///< mean of |p_i - j|, in positions
  double first = 0;                    ///< sink mass: weight on the first key (of the row's segment)
  double self = 0;                     ///< weight on the key at p_i
  double previous = 0;                 ///< weight on the key at p_i - 1
  double next = 0;                     ///< weight on the key at p_i + 1
  double induction = 0;                ///< over rows with an earlier copy of their token; NaN without any
  std::vector<PatternScore> patterns;  ///< all of them, in the order of HeadPattern
  std::vector<std::int64_t> most_received;   ///< keys, the most attended first
  std::vector<double> most_received_weight;  ///< what they received
  /// The names that it has earned, the best first; what a better one implies is left out.
  [[nodiscard]] HEED_API std::vector<HeadName> names() const;
  /// names()[0] in words, "mixed" where there is none, "too few rows" where choices < kLeastRows.
  [[nodiscard]] HEED_API std::string_view name() const;
  /// What stands behind the name: the second one that it has earned, or else the nearest to its threshold.
  /// None where too few rows back it.
  [[nodiscard]] HEED_API std::optional<HeadName> runner_up() const;
};

/// The heads of one model over several texts: texts[t] are the summaries of text t, the same heads in the
/// same order. Means weigh each text by its rows; scores are those of all rows together. Keys of different
/// texts have nothing in common: most_received is empty. Throws Error (invalid_argument) where there is no
/// text, or where the heads differ.
[[nodiscard]] HEED_API std::vector<HeadSummary> merge_summaries(
    std::span<const std::vector<HeadSummary>> texts);

/// One thing that was asked for and what it cost.
struct CostLine {
  std::string what;        ///< "plain forward", "lse, entropy, distance, top-5", "received", …
  double seconds = 0;      ///< that it took or added; NaN where that is not told apart from the others
  double times = 0;        ///< the same in plain forwards; NaN where one takes less than a millisecond
  double bytes = 0;        ///< memory that it took or added, results included
  bool estimated = false;  ///< from a sample of the rows (plain forward), or from sizes alone (full matrix)
  bool made = true;        ///< false: only told what it would take (full matrix), and 0 seconds
};

/// What a report is to hold beyond the row summaries, which are always there.
struct ReportOptions {
  std::int64_t top_k = 5;  ///< keys a row; 0 is off
  bool received = true;
  /// Levels of the map down to 1024 x 1024 bins at most (min with Lq x Lk); 0 x 0 leaves the map out.
  MapSize map{1024, 1024};
  std::int64_t most_received = 8;  ///< keys in HeadSummary::most_received
  /// The whole matrix where Lq * Lk is at most this; 0 never. The page's limit is kFullWeightsCells.
  std::int64_t full_weights_cells = 0;
  std::vector<TileRange> tiles{};  ///< tiles to hold at full resolution
  /// Rows, ascending, for questions about them alone: nothing else is computed. What AttentionResult has of
  /// other rows is NaN (in top_k_index -1), and received, the map, tiles, the full matrix, what a head's
  /// rows share with their neighbours (first, self, previous, next, induction) and the summaries are left
  /// out. None: all rows.
  std::vector<std::int64_t> rows{};
  std::vector<std::string> query_tokens{};  ///< one a row, or none; UTF-8
  std::vector<std::string> key_tokens{};    ///< one a key; none where they are the query's
  /// Ids of the same tokens, or none. Copies of a token are those of its id; without ids, of its text.
  std::vector<std::int64_t> query_token_ids{};
  std::vector<std::int64_t> key_token_ids{};
  bool cost = false;  ///< time a plain forward (a sample of it where it is long), too
  /// Computes the call in place of attention(), over machines: all results that the options ask for, those
  /// of rows with four axes; the output may be left out. Not where `rows` are asked for. There is no cost of
  /// a forward pass then.
  std::function<AttentionResult(const AttentionOptions& options)> attend{};
  /// Told now and then how much is done, from 0 to 1, and of what; from any thread, one at a time.
  std::function<void(std::string_view what, double share)> progress{};
};

/// Full weights are held for a page while a head has at most this many cells.
inline constexpr std::int64_t kFullWeightsCells = 4'000'000;

/// A layer of a model, whose heads lie one after another on the head axis of a report.
struct LayerHeads {
  std::string name;        ///< "0", "1", …; where kinds are told apart, "encoder 0", "decoder 0", "cross 0"
  std::int64_t heads = 0;  ///< at least 1
};

/// What was found. B and H are always there, also for inputs of rank 2 or 3. Numbers a row or key are f64 for
/// f64 inputs and f32 for all others. What was not asked for is empty (shape [0]).
struct AttentionReport {
  std::int64_t batch = 0, heads = 0, kv_heads = 0, queries = 0, keys = 0, head_dim = 0, value_dim = 0;
  DType dtype = DType::f32;
  std::string kernel;                         ///< "fused", "reference"
  std::string isa;                            ///< its instruction set
  std::vector<std::string> query_tokens;      ///< Lq of them, or none
  std::vector<std::string> key_tokens;        ///< Lk of them, or none
  std::vector<std::int64_t> query_token_ids;  ///< Lq of them, or none
  std::vector<std::int64_t> key_token_ids;    ///< Lk of them, or none
  /// The layers that have the heads, H of them together, in this order; none where the heads are of one call.
  std::vector<LayerHeads> layers;
  /// The call in words, as options of `heed attend`: {"scale", "0.125"}, {"causal", "true"}, {"window",
  /// "4,-1"}, {"mask", "bool [1, 1, 7, 7]"} …
  std::vector<std::pair<std::string, std::string>> options;

  Tensor output;     ///< [B, H, Lq, Dv], in the inputs' dtype
  Tensor position;   ///< [B, Lq], i64: p_i, counted within the row's segment
  Tensor key_begin;  ///< [B, Lq], i64: keys [key_begin, key_end) are those that lengths, segments, causal and
  Tensor key_end;    ///< [B, Lq], i64: window allow the row; mask and bias may forbid more. Equal: none.

  Tensor lse, max_score, entropy, distance;       ///< [B, H, Lq], as in AttentionResult
  Tensor max_weight;                              ///< [B, H, Lq]: the largest weight
  Tensor first, self, previous, next, induction;  ///< [B, H, Lq]: as in HeadSummary; induction only with
                                                  ///< tokens or ids, NaN in rows without an earlier copy
  Tensor received;                                ///< [B, H, Lk]
  Tensor top_k_index, top_k_weight;               ///< [B, H, Lq, K], as in AttentionResult

  /// Levels [B, H, R, C] of sums of weights, f64, the finest first: bin (r, c) of the finest as in
  /// AttentionResult::map; of each next level (rounded up to) half as many rows and columns, bin (r, c) being
  /// the sum of bins (2r, 2c) to (2r + 1, 2c + 1) of the one before it. The last is 1 x 1.
  std::vector<Tensor> map;
  WeightTile weights;             ///< the whole matrix, where asked for and small enough
  std::vector<WeightTile> tiles;  ///< as asked for

  std::vector<HeadSummary> summaries;  ///< B * H of them, by batch entry, then head
  /// The plain forward first (only with ReportOptions::cost), then what each thing asked for added, and last
  /// what the full matrix would take.
  std::vector<CostLine> cost;
};

/// The layer (-1 without layers) and the number within it of head `head` of the axis H.
struct HeadPlace {
  std::int64_t layer = -1;
  std::int64_t head = 0;
};
[[nodiscard]] HEED_API HeadPlace place_of(const AttentionReport& report, std::int64_t head) noexcept;
/// "layer 3, head 1"; "head 1" without layers.
[[nodiscard]] HEED_API std::string name_of_head(const AttentionReport& report, std::int64_t head);

/// The reports of a model's layers as one, whose axis H has the heads of all of them, in this order. They are
/// of the same rows and keys (batch, Lq, Lk, tokens). What one of them lacks the whole lacks; options that
/// differ read "differs by layer"; [key_begin, key_end) holds the keys that any layer's row may see. There is
/// no output, and no cost. Throws Error (invalid_argument) for none, and for reports that differ.
[[nodiscard]] HEED_API AttentionReport
join_layers(std::vector<std::pair<std::string, AttentionReport>> layers);

/// Element [indices…] of an f32 or f64 tensor, as those of a report are. Indices are not checked.
[[nodiscard]] inline double number_at(const Tensor& tensor, std::initializer_list<std::int64_t> index) {
  std::int64_t at = 0;
  int axis = 0;
  for (const std::int64_t i : index) at = at * tensor.size(axis++) + i;
  return tensor.dtype() == DType::f64
             ? tensor.values<double>()[static_cast<std::size_t>(at)]
             : static_cast<double>(tensor.values<float>()[static_cast<std::size_t>(at)]);
}

/// Runs attention(query, key, value, options) and gathers a report. Of the options those that ask for results
/// (need, top_k, received_last, map) are not read. Throws as attention() and attention_tile() do, and
/// invalid_argument for tokens whose number is not that of the rows or keys.
[[nodiscard]] HEED_API AttentionReport make_report(const TensorView& query, const TensorView& key,
                                                   const TensorView& value,
                                                   const AttentionOptions& options = {},
                                                   const ReportOptions& wanted = {});

/// What masks leave of one head's square of queries and keys: causality, window, lengths, segments, boolean
/// and sparse masks. A bias of -inf is none.
struct MaskPicture {
  Tensor allowed;  ///< [R, C], f64: of each bin, as in AttentionResult::map, the share that is allowed
  double allowed_share = 0;  ///< of all Lq x Lk pairs
  double tile_share = 0;     ///< those in tiles of 64 x 64 with an allowed pair: about what a kernel computes
};

/// In at most Lq x Lk bins. Throws Error (invalid_argument) as attention() does, and for a place or size that
/// the call does not have.
[[nodiscard]] HEED_API MaskPicture mask_picture(const TensorView& query, const TensorView& key,
                                                const AttentionOptions& options, std::int64_t batch,
                                                std::int64_t head, const MapSize& bins);

/// Each level the exact sums (in f64) of 2 x 2 bins of the one before it, from `finest` [B, H, R, C] (which
/// becomes the first level, as f64) down to 1 x 1.
[[nodiscard]] HEED_API std::vector<Tensor> pool_map(const TensorView& finest);

/// The exact sums (in f64) of `finest` [B, H, R, C] in fewer bins, those of AttentionResult::map of that
/// size, where R is the number of queries or a multiple of size.rows, and C alike. Throws Error
/// (invalid_argument) for a size of less than one bin or more than R x C.
[[nodiscard]] HEED_API Tensor map_in_bins(const TensorView& finest, const MapSize& size);

}  // namespace heed
