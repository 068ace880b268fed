// The options of a call in words, and the words of its rows and keys.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "heed/attention.hpp"
#include "heed/inspect.hpp"

namespace heed::detail {

/// What differs from the defaults, under the names that `heed attend` has for it, in the order of
/// AttentionOptions.
std::vector<std::pair<std::string, std::string>> describe_options(const AttentionOptions& options);

/// Throws Error (invalid_argument) unless texts and ids are one for each row of `rows`, or each key of
/// `columns`, or none.
void check_tokens(const ReportOptions& wanted, std::int64_t rows, const char* of_rows, std::int64_t columns,
                  const char* of_columns);

/// Tokens of the report, whose sizes are known. Keys are the rows' tokens unless they have their own.
void take_tokens(const ReportOptions& wanted, AttentionReport& report);

}  // namespace heed::detail
