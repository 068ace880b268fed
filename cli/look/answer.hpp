// Answers to questions about a document. Most come from its report; single cells are computed from query, key
// and lse.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heed/inspect/document.hpp"
#include "look/arguments.hpp"

namespace heed::cli {

/// Summaries of the requested heads, in the requested order.
[[nodiscard]] std::vector<HeadSummary> heads_of(const Document& document, const LookArguments& arguments);

/// The requested rows of every requested head. A single row from --row comes with all its weights.
[[nodiscard]] std::vector<AttendedRow> answer_rows(const Document& document, const LookArguments& arguments);

/// The tile of --tile for the requested heads. If there are several, they are the tile's head axis.
[[nodiscard]] WeightTile answer_tile(const Document& document, const LookArguments& arguments);

/// All weights of the requested rows: [B, H, rows, keys] over the requested batch entries and heads.
[[nodiscard]] Tensor weights_of_rows(const Document& document, LookArguments arguments);

/// Clips --tile to the number of rows and keys. Returns whether it was clipped.
bool cut_tile(const Document& document, LookArguments& arguments);

/// Throws UsageError, before any work, if a question lies outside the matrix or its answer would be too
/// large.
void check_question(const Document& document, const LookArguments& arguments);

}  // namespace heed::cli
