// Reports on the heads of a model that reads a text of any length. The heads of all layers share one axis,
// layer after layer.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/attention/eviction.hpp"
#include "heed/export.hpp"
#include "heed/inspect/document.hpp"
#include "heed/inspect/reports.hpp"
#include "heed/model/model.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// The kind of weight to report: p_ij, or key j's share w_ij of the vector norms that row i receives:
///
///   w_ij = p_ij n_j / m_i,   n_j = |v_j W_O|,   m_i = sum_j p_ij n_j
///
/// W_O is the head's slice of the output projection (Kobayashi et al. 2020): a key with a large weight but a
/// small value contributes little. p_ij n_j equals w_ij m_i. n_j is at least 1e-30.
enum class WeighedBy { attention, norm };

/// Covers `layer`, or all layers.
struct TextCallOptions {
  WeighedBy by = WeighedBy::attention;
  std::optional<std::int64_t> layer{};
  int threads = 0;
};

/// Tokens [begin, end) of a text.
using TokenSpan = std::pair<std::int64_t, std::int64_t>;

/// Options of look_at_text().
struct TextLookOptions {
  /// Options of make_report(); the tokens come from the text. rows, tiles, cost and full_weights_cells are
  /// ignored.
  ReportOptions report{.top_k = 0, .map = {}};
  WeighedBy by = WeighedBy::attention;
  std::optional<std::int64_t> layer{};  ///< only this layer
  /// Keep the row results, O(heads L). false: keep only summaries, received, and row positions.
  bool keep_rows = true;
  std::vector<TokenSpan> needle{};  ///< see Retrieval
  int threads = 0;
};

/// Retrieval of given tokens (a needle) in a long text by a head: the total weight on them. Wu et al. (2024)
/// count how often such a token has the head's largest weight while it is being copied. The weights show the
/// same without generation.
struct Retrieval {
  double last = 0;        ///< weight from the last row
  double mean = 0;        ///< mean over rows outside the needle that may see its first token; NaN if none
  std::int64_t rows = 0;  ///< number of these rows
};

/// A report on the heads of a model that read a text.
struct TextLook {
  AttentionReport report;            ///< without output; layers are named "0", "1", …
  std::vector<Retrieval> retrieval;  ///< one per head, if there is a needle
  Tensor norms, moved;               ///< [H, L], f32: n_j and m_i (WeighedBy::norm)
};

/// Runs the model over the text, one layer at a time. Queries, keys and weights of a layer are freed before
/// the next. The reported attention is the one that the model continues with. Throws Error as hidden_states()
/// and make_report() do, and invalid_argument for a layer out of range or a needle outside the text.
[[nodiscard]] HEED_API TextLook look_at_text(const Model& model, const ModelTokens& text,
                                             const TextLookOptions& options = {});

/// Joins the calls of all layers into one document, still without a report. It takes 4 bytes per number of
/// queries, keys and values. Differences between layers become differences between heads: windows go into a
/// sparse mask, scales into the queries. Throws Error as hidden_states() does, and invalid_argument if layers
/// differ in an option that a call has only once (a softcap).
[[nodiscard]] HEED_API Document document_of_text(const Model& model, const ModelTokens& text,
                                                 const TextCallOptions& options = {});

/// The retrieval of each head of a document's first batch entry. Throws Error (invalid_argument) for an empty
/// needle, a needle outside the keys, and without a report.
[[nodiscard]] HEED_API std::vector<Retrieval> retrieval_of(const Document& document,
                                                           std::span<const TokenSpan> needle);

/// Returns the share of each head's weights on keys that the policy has evicted by then, as trace_eviction()
/// finds it: [layers, H], f64. It is the mean over the rows whose keys exceed the budget
/// and the prompt. Throws Error as hidden_states() and trace_eviction() do, and invalid_argument for a text
/// without such rows.
[[nodiscard]] HEED_API Tensor lost_by_eviction(const Model& model, const TensorView& tokens,
                                               const EvictionPolicy& policy, std::int64_t prompt = 0,
                                               int threads = 0);

/// The token ranges of each occurrence of `words` in `text`; empty if there is none. `tokens` is the
/// tokenized `text`.
[[nodiscard]] HEED_API std::vector<TokenSpan> spans_of(std::string_view text, const ModelTokens& tokens,
                                                       std::string_view words);

/// The tokens of the standard protocol for induction heads (Olsson et al. 2022): BOS if the model has one,
/// then `count` different random tokens, twice. Special tokens are left out. Fewer tokens are drawn if the
/// vocabulary or a fixed context is too small. Throws Error (invalid_argument) for a count below 1, or a
/// context of fewer than two tokens.
[[nodiscard]] HEED_API ModelTokens repeated_random_tokens(const Model& model, std::int64_t count = 64,
                                                          std::uint64_t seed = 1);

}  // namespace heed
