// Answers to questions about a document, from its report and, for single cells, from query, key and lse.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heed/document.hpp"
#include "look/arguments.hpp"

namespace heed::cli {

/// Heads of the summary that were asked for, in the order asked for.
[[nodiscard]] std::vector<HeadSummary> heads_of(const Document& document, const LookArguments& arguments);

/// The rows asked for, each in every head asked for; a single one of --row with all its weights.
[[nodiscard]] std::vector<AttendedRow> answer_rows(const Document& document, const LookArguments& arguments);

/// The tile of --tile in the heads asked for; of several its head axis has those of arguments.heads.
[[nodiscard]] WeightTile answer_tile(const Document& document, const LookArguments& arguments);

/// All weights of the rows asked for: [B, H, rows, keys], B and H as asked for.
[[nodiscard]] Tensor weights_of_rows(const Document& document, LookArguments arguments);

/// Lets --tile end where the rows and the keys do. Returns whether it was longer.
bool cut_tile(const Document& document, LookArguments& arguments);

/// Throws UsageError, before any work, where a question lies outside the matrix or its answer would not fit.
void check_question(const Document& document, const LookArguments& arguments);

}  // namespace heed::cli
