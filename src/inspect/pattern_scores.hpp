// Scores of each head pattern for one head; docs/heads.md has the formulas.
#pragma once

#include <vector>

#include "attention/problem/problem.hpp"
#include "heed/inspect/reports.hpp"
#include "inspect/rows.hpp"
#include "inspect/token_sets.hpp"

namespace heed::detail {

/// Reads the rows of one head from [B, H, Lq], or from [B, 1, Lq], shared by all heads.
class RowReader {
 public:
  RowReader(const Tensor& tensor, std::int64_t batch, std::int64_t head);
  double operator()(std::int64_t i) const;

 private:
  Operand from_;
  std::int64_t batch_, head_;
};

/// Fills summary.patterns and summary.choices. `allowed` has the keys that each row of the head may attend.
/// Rows of NaN and rows without keys are left out.
void score_patterns(const Problem& problem, const AttentionReport& report, const TokenSets& sets,
                    const std::vector<AllowedKeys>& allowed, HeadSummary& summary);

/// Sets score, rest_score and named from `all`, `rest` and `rows`.
void complete_score(PatternScore& score);

}  // namespace heed::detail
