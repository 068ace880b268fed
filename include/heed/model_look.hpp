// What the heads of a model do while it reads a text, at any length: heads of all layers on one axis, layer
// after layer.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/document.hpp"
#include "heed/export.hpp"
#include "heed/inspect.hpp"
#include "heed/model.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// What weights are of: p_ij, or the share of row i's moves that key j has,
///
///   w_ij = p_ij n_j / m_i,   n_j = |v_j W_O|,   m_i = sum_j p_ij n_j
///
/// where W_O is the head's slice of the output projection (Kobayashi et al. 2020: a key of a large weight and
/// a small value moves little). p_ij n_j itself is w_ij m_i. Keys that move nothing keep 1e-30 of a size.
enum class WeighedBy { attention, norm };

/// A call is about `layer`, or about all of them.
struct TextCallOptions {
  WeighedBy by = WeighedBy::attention;
  std::optional<std::int64_t> layer{};
  int threads = 0;
};

/// Tokens [begin, end) of a text.
using TokenSpan = std::pair<std::int64_t, std::int64_t>;

struct TextLookOptions {
  /// As for make_report(), its tokens being the text's. rows, tiles, cost and full_weights_cells are not
  /// read.
  ReportOptions report{.top_k = 0, .map = {}};
  WeighedBy by = WeighedBy::attention;
  std::optional<std::int64_t> layer{};  ///< this one alone
  /// The report keeps what it has a row, O(heads L); false: only summaries, received, and where rows stand.
  bool keep_rows = true;
  std::vector<TokenSpan> needle{};  ///< see Retrieval
  int threads = 0;
};

/// How a head finds tokens again that stand somewhere in a long text (a needle): the weight on all of them.
/// Wu et al. (2024) count how often such a token has a head's largest weight while it is written again; the
/// weights say the same without writing.
struct Retrieval {
  double last = 0;        ///< by the last row
  double mean = 0;        ///< by rows outside of the needle that may see its first place; NaN without any
  std::int64_t rows = 0;  ///< those
};

struct TextLook {
  AttentionReport report;            ///< without output; layers are named "0", "1", …
  std::vector<Retrieval> retrieval;  ///< of each head, where there is a needle
  Tensor norms, moved;               ///< [H, L], f32: n_j and m_i, where they weigh
};

/// Runs the model over the text, one layer at a time: queries, keys and weights of a layer are forgotten
/// before the next, and the attention that is reported is the attention that the model goes on with. Throws
/// Error as hidden_states() and make_report() do, and invalid_argument for a layer that there is not, or a
/// needle outside of the text.
[[nodiscard]] HEED_API TextLook look_at_text(const Model& model, const ModelTokens& text,
                                             const TextLookOptions& options = {});

/// The calls of all layers as one, without a report yet, for any later question: 4 bytes for each number of
/// queries, keys and values. What differs by layer is told by head: windows by a sparse mask, scales within
/// the queries. Throws Error as hidden_states() does, and invalid_argument for a model whose layers differ in
/// what a call can say only once (a softcap).
[[nodiscard]] HEED_API Document document_of_text(const Model& model, const ModelTokens& text,
                                                 const TextCallOptions& options = {});

/// Retrieval of each head of a document's first batch entry. Throws Error (invalid_argument) for no needle,
/// for one that is not within the keys, and without a report.
[[nodiscard]] HEED_API std::vector<Retrieval> retrieval_of(const Document& document,
                                                           std::span<const TokenSpan> needle);

/// The tokens of each place where `words` stands in `text`, which the tokens are of; none where it does not.
[[nodiscard]] HEED_API std::vector<TokenSpan> spans_of(std::string_view text, const ModelTokens& tokens,
                                                       std::string_view words);

}  // namespace heed
