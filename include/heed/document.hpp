// A call of attention that was looked at once and can be asked about ever after, in one safetensors file
// (docs/formats.md); and proof that what is said of it is so.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "heed/export.hpp"
#include "heed/inspect.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// A call, and what was found in it. It is moved, not copied: views point into its tensors.
struct HEED_API Document {
  Document() = default;
  Document(Document&&) = default;
  Document& operator=(Document&&) = default;
  Document(const Document&) = delete;
  Document& operator=(const Document&) = delete;
  ~Document() = default;

  TensorView query, key, value;  ///< with a report [B, H, L, D]; before, they may lack axes
  AttentionOptions options;
  std::vector<Tensor> tensors;  ///< what the views point into, where that is not the caller's
  bool has_value = true;        ///< false: the file holds none, its keys stand in
  bool has_report = false;      ///< before, of `report` only the tokens and layers are there
  AttentionReport report;
};

/// Runs the call and fills the report, as make_report() does, with the document's tokens, ids and layers.
/// Throws as that does, and Error (invalid_argument) for a document without values.
HEED_API void fill_report(Document& document, ReportOptions wanted = {});

/// What there is to see in weights that were computed elsewhere, [B, H, Lq, Lk] or without the first axes,
/// each row of which sums to 1 at most. The call that stands for it has their logarithms as its bias, and the
/// report lse 0: its tiles are these weights. `allowed` (bool, broadcast as a mask is) says which keys a row
/// may see; without it rows see all keys, or, where every weight beyond the diagonal that ends in the last
/// key is exactly 0, those up to it. Of `wanted`, rows, tiles and cost are not read. Throws Error
/// (invalid_argument) for numbers that no softmax gives, and for what does not fit together.
[[nodiscard]] HEED_API Document document_of_weights(const TensorView& weights,
                                                    const std::optional<TensorView>& allowed = {},
                                                    const ReportOptions& wanted = {});

/// Reads what save_document() or `heed explain --save` wrote; of the latter there is no report yet. Throws
/// Error (io), naming the file, for anything else and for what does not fit together.
[[nodiscard]] HEED_API Document open_document(const std::string& path);

/// Keeps query, key, the options, and all that the report has a row, a key or a bin, but neither value nor
/// output. Throws as write_safetensors() does, and Error (invalid_argument) where there is no report.
HEED_API void save_document(const std::string& path, const Document& document);

/// A piece of its weights, from the report's lse.
[[nodiscard]] HEED_API WeightTile attention_tile(const Document& document, const TileRange& range);

/// The same for one head of one batch entry, summed into bins of `step` x `step` cells, f64, the last ones
/// cut where the range ends: [1, 1, ceil(rows / step), ceil(keys / step)]. `allowed` says of a bin whether
/// any of its cells is. f32 products are summed in f32, as by the kernel. Throws as attention_tile() does,
/// and for a range of all heads or a step below 1.
[[nodiscard]] HEED_API WeightTile attention_tile_in_bins(const Document& document, const TileRange& range,
                                                         std::int64_t step);

/// What a row of one head attends to.
struct AttendedRow {
  struct Key {
    std::int64_t key = 0;
    double weight = 0;
  };
  std::int64_t batch = 0, head = 0, row = 0;
  double entropy = 0;
  double distance = 0;
  std::vector<Key> top;         ///< the heaviest first, equal ones by the lower index; NaN is not ranked
  std::vector<double> weights;  ///< of every key, where asked for
};
/// The `top_k` heaviest keys: the report's where it holds as many and not all weights are asked for, else
/// computed. Throws Error (invalid_argument) for a place that the document does not have.
[[nodiscard]] HEED_API AttendedRow attended_row(const Document& document, std::int64_t batch,
                                                std::int64_t head, std::int64_t row, std::int64_t top_k,
                                                bool all_weights = false);

/// The heaviest weight that any of some rows gives any of some keys, in one head.
struct PairWeight {
  std::int64_t batch = 0, head = 0, row = 0, key = 0;
  double weight = 0;      ///< 0 where none of the rows may see any of the keys
  std::int64_t rank = 0;  ///< 1 plus the keys of the row that weigh more; 0 where it may see none of `keys`
};
/// Every head of every batch entry, the heaviest first, equal ones in their order: which heads make "it"
/// attend to "animal", whose places are `rows` and `keys`. Computed in f64 from query, key and the report's
/// lse, in O(rows x keys + Lk) weights a head. A weight of NaN is not counted. Throws Error
/// (invalid_argument) for no places, for places that the document does not have, and without a report.
[[nodiscard]] HEED_API std::vector<PairWeight> heads_by_pair(const Document& document,
                                                             std::span<const std::int64_t> rows,
                                                             std::span<const std::int64_t> keys);

/// The weights summed into bins (at most one a row and key), [B, H, R, C], f64: from the report's map where
/// that holds them, else computed.
[[nodiscard]] HEED_API Tensor attention_map(const Document& document, const MapSize& size);

/// One property, and how far the worst of what was checked is from it.
struct CheckLine {
  std::string what;
  double deviation = 0;  ///< relative to the size of what is compared
  double allowed = 0;    ///< where deviation / allowed is largest
  [[nodiscard]] bool holds() const { return deviation <= allowed; }  // NaN does not
};

struct DocumentCheck {
  std::int64_t rows = 0;       ///< of all heads, all of whose numbers were compared
  std::int64_t nan_rows = 0;   ///< besides: that they are NaN was checked
  std::int64_t lost_rows = 0;  ///< besides: scores so large that rounding leaves nothing to compare
  std::int64_t keys = 0;       ///< what they received was compared
  std::int64_t bins = 0;       ///< of the map
  /// Batch entry and head: none of its rows could be compared.
  std::vector<std::pair<std::int64_t, std::int64_t>> bare_heads;
  bool output = true;  ///< weights times values were compared with the output
  std::vector<CheckLine> lines;
  [[nodiscard]] HEED_API bool holds() const;
};

/// Takes `rows` rows of every head (or of the one that batch and head, where not -1, choose), the first and
/// last among them, evenly. For each the scores are computed in f64 from query and key, one by one, and from
/// them all that the report says of the row. As many keys and bins of the map are summed again, with the
/// report's lse of each row, and the means of the summary are taken again from the numbers of the rows. It
/// shares nothing with the kernels or the report but the readers of tensors. Throws Error (invalid_argument)
/// for less than a row, and where there is no report.
[[nodiscard]] HEED_API DocumentCheck check_document(const Document& document, std::int64_t rows = 16,
                                                    std::int64_t batch = -1, std::int64_t head = -1);

}  // namespace heed
