// The parts of a report that tell which call it is about.
#pragma once

#include <cstdint>

#include "attention/problem/problem.hpp"
#include "heed/inspect/reports.hpp"

namespace heed::detail {

/// Throws Error (invalid_argument) unless texts and ids are empty or have one entry for each row of `rows` or
/// key of `columns`.
void check_tokens(const ReportOptions& wanted, std::int64_t rows, const char* of_rows, std::int64_t columns,
                  const char* of_columns);

/// Fills sizes, dtype, options, tokens and the places of rows.
void describe_call(const Problem& problem, const AttentionOptions& options, const ReportOptions& wanted,
                   AttentionReport& report);

}  // namespace heed::detail
