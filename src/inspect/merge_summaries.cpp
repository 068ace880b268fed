#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "core/message.hpp"
#include "heed/inspect/reports.hpp"
#include "inspect/document_format.hpp"
#include "inspect/pattern_scores.hpp"

namespace heed {
namespace {

void check_alike(std::span<const std::vector<HeadSummary>> texts) {
  if (texts.empty()) detail::refuse("texts is empty; the summaries of at least one text are expected");
  const std::vector<HeadSummary>& first = texts.front();
  for (std::size_t t = 1; t < texts.size(); ++t) {
    bool same = texts[t].size() == first.size();
    for (std::size_t k = 0; same && k < first.size(); ++k)
      same = texts[t][k].batch == first[k].batch && texts[t][k].head == first[k].head &&
             texts[t][k].patterns.size() == first[k].patterns.size();
    if (!same)
      detail::refuse("text ", t, " has ", detail::counted(texts[t].size(), "head"), "; the ",
                     detail::counted(first.size(), "head"), " of the first text, in its order,",
                     detail::expected(first.size()));
  }
}

// The number of rows behind a mean; for induction, rows with an earlier copy.
double rows_behind(const HeadSummary& head, double HeadSummary::*mean) {
  if (std::isnan(head.*mean)) return 0;
  const auto induction = static_cast<std::size_t>(HeadPattern::induction);
  const bool of_some = mean == &HeadSummary::induction && head.patterns.size() > induction;
  return static_cast<double>(of_some ? head.patterns[induction].rows : head.rows);
}

void add(const PatternShare& from, PatternShare& to) {
  to.part += from.part;
  to.whole += from.whole;
}

// Adds the scores that texts have for one pattern. Each text measures one fixed offset, so the offset with
// the most weight in all texts is taken, and texts that measured another one add rows without weight.
PatternScore merged_score(std::span<const std::vector<HeadSummary>> texts, std::size_t k,
                          std::size_t pattern) {
  PatternScore merged{.pattern = texts.front()[k].patterns[pattern].pattern};
  std::map<std::int64_t, double> parts;
  for (const std::vector<HeadSummary>& text : texts) {
    const PatternScore& one = text[k].patterns[pattern];
    parts[one.offset] += one.all.part + one.rest.part;
  }
  merged.offset = std::ranges::max_element(parts, {}, [](const auto& one) { return one.second; })->first;
  for (const std::vector<HeadSummary>& text : texts) {
    PatternScore one = text[k].patterns[pattern];
    if (one.offset != merged.offset) one.all.part = one.rest.part = 0;
    if (one.offset == merged.offset) merged.rows += one.rows;
    add(one.all, merged.all);
    add(one.rest, merged.rest);
  }
  detail::complete_score(merged);
  return merged;
}

HeadSummary merged_head(std::span<const std::vector<HeadSummary>> texts, std::size_t k) {
  HeadSummary merged;
  merged.batch = texts.front()[k].batch;
  merged.head = texts.front()[k].head;
  for (std::size_t s = 0; s < texts.front()[k].patterns.size(); ++s)
    merged.patterns.push_back(merged_score(texts, k, s));
  for (const std::vector<HeadSummary>& text : texts) {
    merged.rows += text[k].rows;
    merged.nan_rows += text[k].nan_rows;
    merged.choices += text[k].choices;
  }
  for (const detail::SummaryField& field : detail::kSummaryFields) {
    double sum = 0, rows = 0;
    for (const std::vector<HeadSummary>& text : texts)
      if (const double weight = rows_behind(text[k], field.value); weight > 0) {
        sum += weight * (text[k].*field.value);
        rows += weight;
      }
    merged.*field.value = rows > 0 ? sum / rows : std::numeric_limits<double>::quiet_NaN();
  }
  return merged;
}

}  // namespace

std::vector<HeadSummary> merge_summaries(std::span<const std::vector<HeadSummary>> texts) {
  check_alike(texts);
  std::vector<HeadSummary> merged;
  for (std::size_t k = 0; k < texts.front().size(); ++k) merged.push_back(merged_head(texts, k));
  return merged;
}

}  // namespace heed
