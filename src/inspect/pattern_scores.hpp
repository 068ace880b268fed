// How well each rule for heads fits one head; docs/heads.md has the formulas.
#pragma once

#include <vector>

#include "attention/problem/problem.hpp"
#include "heed/inspect.hpp"
#include "inspect/rows.hpp"
#include "inspect/token_sets.hpp"

namespace heed::detail {

/// Reads [B, H, Lq] (or [B, 1, Lq], the same for all heads) of one head.
class RowReader {
 public:
  RowReader(const Tensor& tensor, std::int64_t batch, std::int64_t head);
  double operator()(std::int64_t i) const;

 private:
  Operand from_;
  std::int64_t batch_, head_;
};

/// Fills summary.patterns and summary.choices; `allowed` is what each row of the head may attend to. Rows of
/// NaN, and those that see no key, are left out.
void score_patterns(const Problem& problem, const AttentionReport& report, const TokenSets& sets,
                    const std::vector<AllowedKeys>& allowed, HeadSummary& summary);

/// score, rest_score and named from `all`, `rest` and `rows`.
void complete_score(PatternScore& score);

}  // namespace heed::detail
