// Head summaries.
#pragma once

#include "attention/problem/problem.hpp"
#include "heed/inspect/reports.hpp"
#include "inspect/token_sets.hpp"

namespace heed::detail {

/// Fills report.summaries from its row results and the sets of keys. Lists `most_received` keys if
/// report.received exists.
void fill_summaries(const Problem& problem, std::int64_t most_received, const TokenSets& sets,
                    AttentionReport& report);

}  // namespace heed::detail
