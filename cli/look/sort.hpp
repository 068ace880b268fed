// The order of heads: --sort.
#pragma once

#include <string>
#include <vector>

#include "heed/inspect.hpp"

namespace heed::cli {

/// What heads can be sorted by.
[[nodiscard]] const std::vector<std::string>& sort_columns();

/// Those that are names of heads, in the order of HeadPattern.
[[nodiscard]] std::vector<std::string> pattern_columns();

/// The score of the head's name; NaN where it has none.
[[nodiscard]] double score_of_name(const HeadSummary& head);

/// Sorts by one of sort_columns(): the largest first, names by the alphabet; heads without a number last.
/// Equal ones keep their order.
void sort_heads(std::vector<HeadSummary>& heads, const std::string& column);

}  // namespace heed::cli
