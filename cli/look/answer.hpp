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

/// The row of --row in every head asked for.
[[nodiscard]] std::vector<AttendedRow> answer_row(const Document& document, const LookArguments& arguments);

/// Every row whose token is that of --token, in every head asked for. Throws UsageError where there is none.
[[nodiscard]] std::vector<AttendedRow> answer_token(const Document& document, const LookArguments& arguments);

/// The tile of --tile in the heads asked for.
[[nodiscard]] WeightTile answer_tile(const Document& document, const LookArguments& arguments);

/// Lets --tile end where the rows and the keys do. Returns whether it was longer.
bool cut_tile(const Document& document, LookArguments& arguments);

/// Throws UsageError, before any work, where a question lies outside the matrix or its answer would not fit.
void check_question(const Document& document, const LookArguments& arguments);

}  // namespace heed::cli
