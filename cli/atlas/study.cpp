#include "atlas/study.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string_view>
#include <utility>

#include "command.hpp"
#include "draw/lettering.hpp"
#include "looked_at.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kMaxCells = 64;  // per side of a map
constexpr int kWord = 16;               // columns of a word in an example

// A row and its most attended key. `value` measures how typical the row is of the head's name.
struct Example {
  bool telling = false;  ///< the key is not a default one, such as the first key or the row's own
  double value = -1;
  std::int64_t row = 0, key = 0;
  double weight = 0;
};

// The per-row score whose mean is the score of this name; nullptr for names without one.
const Tensor* rows_behind(const AttentionReport& report, std::string_view name) {
  using Entry = std::pair<std::string_view, const Tensor*>;
  const std::array<Entry, 6> known = {
      Entry{"previous-token", &report.previous}, Entry{"induction", &report.induction},
      Entry{"first-token sink", &report.first},  Entry{"self", &report.self},
      Entry{"next-token", &report.next},         Entry{"uniform", &report.entropy}};
  for (const auto& [known_name, tensor] : known)
    if (known_name == name && tensor->rank() == 3) return tensor;
  return nullptr;
}

// The row with the highest per-row score. For names without one, the row with the largest weight.
Example best_example(const Document& document, std::int64_t batch, std::int64_t head,
                     const std::vector<HeadName>& names) {
  const AttentionReport& report = document.report;
  const std::string name = names.empty() ? "" : name_of(names.front());
  const std::int64_t offset = names.empty() ? 0 : names.front().offset;
  const Tensor* rows = rows_behind(report, name);
  Example best;
  for (std::int64_t i = 0; i < report.queries; ++i) {
    const std::int64_t first = report.key_begin.at<std::int64_t>(batch, i);
    if (report.key_end.at<std::int64_t>(batch, i) - first < 2) continue;
    const double value = number_at(rows != nullptr ? *rows : report.max_weight, {batch, head, i});
    if (!(value > best.value) && best.telling) continue;
    const AttendedRow row = attended_row(document, batch, head, i, 1);
    if (row.top.empty() || std::isnan(value)) continue;
    const std::int64_t key = row.top[0].key;
    const std::int64_t place = report.position.at<std::int64_t>(batch, i);
    const bool telling = offset != 0 ? key == place + offset
                                     : (key != first || name == name_of(HeadPattern::first_token_sink)) &&
                                           (key != place || name == "self");
    if (telling != best.telling ? telling : value > best.value)
      best = {telling, value, i, key, row.top[0].weight};
  }
  return best;
}

std::string word_at(const std::vector<std::string>& tokens, std::int64_t place) {
  return tokens.empty() ? std::to_string(place)
                        : shortened(token_text(tokens[static_cast<std::size_t>(place)]), kWord);
}

std::string example_text(const AttentionReport& report, const Example& example) {
  if (example.value < 0) return "";
  return word_at(report.query_tokens, example.row) + " → " + word_at(report.key_tokens, example.key) + " " +
         short_share(example.weight);
}

void check_alike(const std::vector<Document>& texts, std::int64_t batch) {
  for (const Document& text : texts) {
    if (batch >= text.report.batch)
      throw UsageError("--batch is " + std::to_string(batch) + "; 0 to " +
                       std::to_string(text.report.batch - 1) + " is expected");
    if (text.report.heads != texts.front().report.heads)
      throw UsageError("the texts come from different models, with " + std::to_string(text.report.heads) +
                       " and " + std::to_string(texts.front().report.heads));
  }
}

HeadStudy study_of(const std::vector<Document>& texts, std::int64_t batch, std::int64_t head) {
  std::vector<std::vector<HeadSummary>> summaries;
  for (const Document& text : texts) summaries.push_back({summary_of(text.report, batch, head)});
  const HeadSummary summary = merge_summaries(summaries).front();
  const std::vector<HeadName> names = summary.names();
  HeadStudy study;
  study.head.entropy = summary.entropy;
  study.head.name = summary.name();
  study.head.score = names.empty() ? kNaN : names.front().score;
  for (const PatternScore& one : summary.patterns)
    study.scores.push_back(std::isnan(one.score) ? one.rest_score : one.score);
  const Document* from = &texts.front();
  Example best;
  for (const Document& text : texts)
    if (const Example one = best_example(text, batch, head, names); one.value > best.value) {
      best = one;
      from = &text;
    }
  study.head.example = example_text(from->report, best);
  study.head.map = head_map(*from, batch, head, kMaxCells);
  return study;
}

}  // namespace

std::vector<HeadStudy> study_heads(const std::vector<Document>& texts, std::int64_t batch) {
  check_alike(texts, batch);
  std::vector<HeadStudy> studies;
  for (std::int64_t head = 0; head < texts.front().report.heads; ++head)
    studies.push_back(study_of(texts, batch, head));
  return studies;
}

ScoreChange change_between(const HeadStudy& from, const HeadStudy& to) {
  ScoreChange most;
  for (std::size_t p = 0; p < from.scores.size(); ++p) {
    const double change = to.scores[p] - from.scores[p];
    if (!(std::abs(change) > most.size)) continue;
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), " %+.2f", change);
    most = {std::abs(change), std::string(name_of(static_cast<HeadPattern>(p))) + text.data()};
  }
  return most;
}

}  // namespace heed::cli
