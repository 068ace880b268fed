// The order of heads: --sort.
#pragma once

#include <string>
#include <vector>

#include "heed/inspect/reports.hpp"

namespace heed::cli {

/// The columns that --sort accepts.
[[nodiscard]] const std::vector<std::string>& sort_columns();

/// The columns that are names of heads, in the order of HeadPattern.
[[nodiscard]] std::vector<std::string> pattern_columns();

/// The score of the head's name; NaN without a name.
[[nodiscard]] double score_of_name(const HeadSummary& head);

/// Sorts by one of sort_columns(): numbers in descending order, names alphabetically, heads without a number
/// last. The sort is stable.
void sort_heads(std::vector<HeadSummary>& heads, const std::string& column);

}  // namespace heed::cli
