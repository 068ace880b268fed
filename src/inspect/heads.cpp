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

class Summary {
 public:
  Summary(const Problem& p, const AttentionReport& report, const TokenSets& sets, std::int64_t batch,
          std::int64_t head)
      : p_(p), report_(report), sets_(sets) {
    summary_.batch = batch;
    summary_.head = head;
  }

  HeadSummary make() {
    const std::vector<AllowedKeys> allowed = allowed_keys_of(p_, summary_.batch, summary_.head);
    const RowReader lse = reader(report_.lse);
    for (std::int64_t i = 0; i < report_.queries; ++i) {
      if (allowed[static_cast<std::size_t>(i)].keys == 0) continue;
      if (std::isnan(lse(i))) {
        ++summary_.nan_rows;
        continue;
      }
      rows_.push_back(i);
    }
    summary_.rows = std::ssize(rows_);
    for (const SummaryField& field : kSummaryFields) summary_.*field.value = mean(report_.*field.rows);
    score_patterns(p_, report_, sets_, allowed, summary_);
    return std::move(summary_);
  }

 private:
  [[nodiscard]] RowReader reader(const Tensor& tensor) const {
    return {tensor, summary_.batch, summary_.head};
  }

  // Mean over rows that are not NaN.
  [[nodiscard]] double mean(const Tensor& tensor) const {
    double sum = 0, count = 0;
    if (tensor.rank() == 3) {
      const RowReader value = reader(tensor);
      for (const std::int64_t i : rows_)
        if (!std::isnan(value(i))) sum += value(i), ++count;
    }
    return count > 0 ? sum / count : std::numeric_limits<double>::quiet_NaN();
  }

  const Problem& p_;
  const AttentionReport& report_;
  const TokenSets& sets_;
  HeadSummary summary_;
  std::vector<std::int64_t> rows_;  // rows that see a key and are not NaN
};

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
    summary = Summary(problem, report, sets, index / report.heads, index % report.heads).make();
    if (report.received.rank() == 3) find_most_received(report.received, most_received, summary);
  });
  report.summaries = std::move(summaries);
}

}  // namespace detail
}  // namespace heed
