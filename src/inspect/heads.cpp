// Computation of head summaries.
#include "inspect/heads.hpp"

#include <cmath>
#include <limits>

#include "attention/problem/score_rules.hpp"
#include "core/largest.hpp"
#include "heed/parallel.hpp"
#include "inspect/document_format.hpp"
#include "inspect/pattern_scores.hpp"
#include "inspect/rows.hpp"

namespace heed {

namespace detail {
namespace {

// Leaves out NaN.
double mean_of(const Tensor& tensor, std::int64_t batch, std::int64_t head,
               const std::vector<std::int64_t>& rows) {
  double sum = 0, count = 0;
  if (tensor.rank() == 3) {
    const RowReader value(tensor, batch, head);
    for (const std::int64_t i : rows)
      if (!std::isnan(value(i))) sum += value(i), ++count;
  }
  return count > 0 ? sum / count : std::numeric_limits<double>::quiet_NaN();
}

HeadSummary summary_of(const Problem& p, const AttentionReport& report, const TokenSets& sets,
                       std::int64_t batch, std::int64_t head) {
  HeadSummary summary;
  summary.batch = batch;
  summary.head = head;
  const std::vector<AllowedKeys> allowed = allowed_keys_of(p, batch, head);
  const RowReader lse(report.lse, batch, head);
  std::vector<std::int64_t> rows;  // those that see a key and are not NaN
  for (std::int64_t i = 0; i < report.queries; ++i) {
    if (allowed[static_cast<std::size_t>(i)].keys == 0) continue;
    if (std::isnan(lse(i)))
      ++summary.nan_rows;
    else
      rows.push_back(i);
  }
  summary.rows = std::ssize(rows);
  for (const SummaryField& field : kSummaryFields)
    summary.*field.value = mean_of(report.*field.rows, batch, head, rows);
  score_patterns(p, report, sets, allowed, summary);
  return summary;
}

// Ties by rising index, NaN last.
void find_most_received(const Tensor& received, std::int64_t count, HeadSummary& summary) {
  const RowReader value(received, summary.batch, summary.head);
  std::vector<double> sums(static_cast<std::size_t>(received.size(2)));
  for (std::size_t j = 0; j < sums.size(); ++j) sums[j] = value(static_cast<std::int64_t>(j));
  for (const std::int64_t j : largest_of(sums, count)) {
    summary.most_received.push_back(j);
    summary.most_received_weight.push_back(value(j));
  }
}

}  // namespace

void fill_summaries(const Problem& problem, std::int64_t most_received, const TokenSets& sets,
                    AttentionReport& report) {
  std::vector<HeadSummary> summaries(static_cast<std::size_t>(report.batch * report.heads));
  parallel_for(report.batch * report.heads, problem.threads, [&](std::int64_t index, int /*worker*/) {
    HeadSummary& summary = summaries[static_cast<std::size_t>(index)];
    summary = summary_of(problem, report, sets, index / report.heads, index % report.heads);
    if (report.received.rank() == 3) find_most_received(report.received, most_received, summary);
  });
  report.summaries = std::move(summaries);
}

}  // namespace detail
}  // namespace heed
