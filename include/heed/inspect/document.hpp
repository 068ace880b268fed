// Documents: an attention call with its report in one safetensors file (docs/formats.md), to be queried
// later; and a check that the report is correct.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "heed/export.hpp"
#include "heed/inspect/reports.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// A call and its report. It can be moved but not copied, because views point into its tensors.
struct HEED_API Document {
  Document() = default;
  Document(Document&&) = default;
  Document& operator=(Document&&) = default;
  Document(const Document&) = delete;
  Document& operator=(const Document&) = delete;
  ~Document() = default;

  TensorView query, key, value;  ///< [B, H, L, D] once there is a report; before, axes may be missing
  AttentionOptions options;
  std::vector<Tensor> tensors;  ///< memory of the views, unless the caller owns it
  bool has_value = true;        ///< false: the file has no values; `value` holds its keys instead
  bool has_report = false;      ///< false: `report` has only tokens and layers
  AttentionReport report;
};

/// Runs the call and fills the report, as make_report() does, with the document's tokens, ids and layers.
/// Throws as make_report() does, and Error (invalid_argument) for a document without values.
HEED_API void fill_report(Document& document, ReportOptions wanted = {});

/// Builds a document from weights that were computed elsewhere: [B, H, Lq, Lk], or without the first axes;
/// each row sums to at most 1. The call uses the logarithms of the weights as its bias, and the report has
/// lse 0, so that tiles equal these weights. `allowed` (bool, broadcast like a mask) says which keys a row
/// may see. Without it a row sees all keys; if all weights beyond the diagonal that ends at the last key are
/// exactly 0, it sees the keys up to that diagonal. In `wanted`, rows, tiles and cost are ignored. Throws
/// Error (invalid_argument) for numbers that no softmax gives and for arguments that do not fit together.
[[nodiscard]] HEED_API Document document_of_weights(const TensorView& weights,
                                                    const std::optional<TensorView>& allowed = {},
                                                    const ReportOptions& wanted = {});

/// Reads a file of save_document() or of `heed explain --save`; the latter has no report yet. Throws Error
/// (io), naming the file, for any other file and for inconsistent contents.
[[nodiscard]] HEED_API Document open_document(const std::string& path);

/// Saves query, key, the options and the report's numbers for rows, keys and bins, but neither value nor
/// output. Throws as write_safetensors() does, and Error (invalid_argument) without a report.
HEED_API void save_document(const std::string& path, const Document& document);

/// A piece of the document's weights, computed from the report's lse.
[[nodiscard]] HEED_API WeightTile attention_tile(const Document& document, const TileRange& range);

/// The same for one head of one batch entry, summed into bins of `step` x `step` cells, f64: [1, 1, ceil(rows
/// / step), ceil(keys / step)]. The last bins are cut at the end of the range. `allowed` is true for a bin if
/// any of its cells is allowed. f32 products are summed in f32, as in the kernel. Throws as attention_tile()
/// does, and for a range of all heads or a step below 1.
[[nodiscard]] HEED_API WeightTile attention_tile_in_bins(const Document& document, const TileRange& range,
                                                         std::int64_t step);

/// The keys that a row of one head attends to.
struct AttendedRow {
  /// An attended key.
  struct Key {
    std::int64_t key = 0;
    double weight = 0;
  };
  std::int64_t batch = 0, head = 0, row = 0;
  double entropy = 0;
  double distance = 0;
  std::vector<Key> top;         ///< by falling weight, ties by rising index; NaN is not ranked
  std::vector<double> weights;  ///< weights of all keys, if requested
};
/// Returns the `top_k` keys of largest weight. They come from the report if it holds enough keys and not all
/// weights are requested; otherwise they are computed. Throws Error (invalid_argument) for a position outside
/// the document.
[[nodiscard]] HEED_API AttendedRow attended_row(const Document& document, std::int64_t batch,
                                                std::int64_t head, std::int64_t row, std::int64_t top_k,
                                                bool all_weights = false);

/// The largest weight that any of the given rows gives any of the given keys, in one head.
struct PairWeight {
  std::int64_t batch = 0, head = 0, row = 0, key = 0;
  double weight = 0;      ///< 0 if none of the rows may see any of the keys; NaN if all that do have NaN
  std::int64_t rank = 0;  ///< 1 + the number of heavier keys of the row; 0 if it may see none of `keys`
};
/// Every head of every batch entry by falling weight, ties in head order. Shows, for example, which heads
/// make "it" attend to "animal", at the positions `rows` and `keys`. Weights are computed in f64 from query,
/// key and the report's lse: O(rows x keys + Lk) weights per head. NaN comes behind numbers. Throws Error
/// (invalid_argument) for empty lists, for positions outside the document, and without a report.
[[nodiscard]] HEED_API std::vector<PairWeight> heads_by_pair(const Document& document,
                                                             std::span<const std::int64_t> rows,
                                                             std::span<const std::int64_t> keys);

/// The weights summed into bins, [B, H, R, C], f64, with at most one bin per row and key. Taken from the
/// report's map if possible, otherwise computed.
[[nodiscard]] HEED_API Tensor attention_map(const Document& document, const MapSize& size);

/// One checked property and its worst deviation.
struct CheckLine {
  std::string what;
  double deviation = 0;  ///< relative to the magnitude of the compared numbers
  double allowed = 0;    ///< the limit; both are taken where deviation / allowed is largest
  [[nodiscard]] bool holds() const { return deviation <= allowed; }  // NaN does not
};

/// The extent of check_document()'s comparison, and its largest deviations.
struct DocumentCheck {
  std::int64_t rows = 0;       ///< rows, over all heads, that were compared in full
  std::int64_t nan_rows = 0;   ///< other rows, which were checked to be NaN
  std::int64_t lost_rows = 0;  ///< other rows, whose scores are too large to compare after rounding
  std::int64_t keys = 0;       ///< keys whose received weight was compared
  std::int64_t bins = 0;       ///< bins of the map that were compared
  /// Heads without a comparable row, as pairs (batch entry, head).
  std::vector<std::pair<std::int64_t, std::int64_t>> bare_heads;
  bool output = true;  ///< whether weights times values were compared with the output
  std::vector<CheckLine> lines;
  [[nodiscard]] HEED_API bool holds() const;
};

/// Checks `rows` evenly spaced rows, including the first and the last, of every head, or of one head if batch
/// and head are not -1. Computes the scores of these rows in f64 from query and key, one by one, and from
/// them all that the report says of the rows. Sums as many keys and bins of the map again, with the report's
/// lse of each row. Takes the means of the summary again from the numbers of the rows. Shares only the tensor
/// accessors with the kernels and the report. Throws Error (invalid_argument) for fewer than one row and
/// without a report.
[[nodiscard]] HEED_API DocumentCheck check_document(const Document& document, std::int64_t rows = 16,
                                                    std::int64_t batch = -1, std::int64_t head = -1);

}  // namespace heed
