// Descriptions of a call's options, and the tokens of its rows and keys.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "heed/attention/attention.hpp"
#include "heed/inspect/reports.hpp"

namespace heed::detail {

/// The options that differ from the defaults, named as in `heed attend`, in the order of AttentionOptions.
std::vector<std::pair<std::string, std::string>> describe_options(const AttentionOptions& options);

/// Throws Error (invalid_argument) unless texts and ids are empty or have one entry for each row of `rows` or
/// key of `columns`.
void check_tokens(const ReportOptions& wanted, std::int64_t rows, const char* of_rows, std::int64_t columns,
                  const char* of_columns);

/// Copies the tokens into the report, whose sizes are set. Keys use the rows' tokens unless they have their
/// own.
void take_tokens(const ReportOptions& wanted, AttentionReport& report);

}  // namespace heed::detail
