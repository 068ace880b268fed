// What is said of a head as a whole.
#pragma once

#include <vector>

#include "attention/problem/problem.hpp"
#include "heed/inspect.hpp"
#include "inspect/token_sets.hpp"

namespace heed::detail {

/// report.summaries from its row figures and the sets of keys. `most_received` keys are named where
/// report.received is there.
void fill_summaries(const Problem& problem, std::int64_t most_received, const TokenSets& sets,
                    AttentionReport& report);

}  // namespace heed::detail
