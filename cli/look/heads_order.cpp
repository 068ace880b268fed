#include "look/heads_order.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "core/largest.hpp"

namespace heed::cli {
namespace {

constexpr std::size_t kMaxRanked = 10;  // heads listed without --top
constexpr std::size_t kMaxKeysOfAll = 8;

using Value = double (*)(const HeadSummary&);

constexpr std::array<std::pair<const char*, Value>, 9> kColumns = {{
    {"score",
     [](const HeadSummary& head) {
       const std::vector<HeadName> names = head.names();
       return names.empty() ? std::nan("") : names.front().score;
     }},
    {"entropy", [](const HeadSummary& head) { return head.entropy; }},
    {"sink", [](const HeadSummary& head) { return head.first; }},
    {"distance", [](const HeadSummary& head) { return head.distance; }},
    {"self", [](const HeadSummary& head) { return head.self; }},
    {"previous", [](const HeadSummary& head) { return head.previous; }},
    {"next", [](const HeadSummary& head) { return head.next; }},
    {"induction", [](const HeadSummary& head) { return head.induction; }},
    {"received",
     [](const HeadSummary& head) {
       return head.most_received_weight.empty() ? std::nan("") : head.most_received_weight.front();
     }},
}};

// The sort column of a pattern: "first-token-sink".
std::string pattern_column(HeadPattern pattern) {
  std::string name(name_of(pattern));
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

double score_of(const HeadSummary& head, const std::string& column) {
  for (const PatternScore& score : head.patterns)
    if (pattern_column(score.pattern) == column) return score.score;
  return std::nan("");
}

// Descending. NaN counts as less than all numbers.
template <class Number>
void sort_by(std::vector<HeadSummary>& heads, Number number) {
  const auto key = [&](const HeadSummary& head) {
    const double value = number(head);
    return std::isnan(value) ? -std::numeric_limits<double>::infinity() : value;
  };
  std::ranges::stable_sort(heads, std::ranges::greater(), key);
}

// Numbers in descending order, names alphabetically, heads without a number last.
void sort_heads(std::vector<HeadSummary>& heads, const std::string& column) {
  if (column == "name") {
    std::ranges::stable_sort(heads, {}, &HeadSummary::name);
    return;
  }
  const auto found = std::ranges::find_if(kColumns, [&](const auto& known) { return known.first == column; });
  sort_by(heads, [&](const HeadSummary& head) {
    return found != kColumns.end() ? found->second(head) : score_of(head, column);
  });
}

}  // namespace

const std::vector<std::string>& sort_columns() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list = {"name"};
    for (const auto& [name, value] : kColumns) list.emplace_back(name);
    for (const std::string& pattern : pattern_columns())
      if (std::ranges::find(list, pattern) == list.end()) list.push_back(pattern);
    return list;
  }();
  return names;
}

std::vector<std::string> pattern_columns() {
  std::vector<std::string> names;
  for (int i = 0; i < kHeadPatterns; ++i) names.push_back(pattern_column(static_cast<HeadPattern>(i)));
  return names;
}

const PatternScore& score_of_pattern(const HeadSummary& head, HeadPattern pattern) {
  return head.patterns[static_cast<std::size_t>(pattern)];
}

std::vector<HeadSummary> sorted_heads(const Subject& subject, const HeadsQuestion& question) {
  std::vector<HeadSummary> heads;
  for (const HeadSummary& head : subject.document.report.summaries)
    if (subject.includes(head.batch, head.head)) heads.push_back(head);
  const std::string column = question.sort.empty() && question.brief ? "score" : question.sort;
  if (!column.empty()) sort_heads(heads, column);
  return heads;
}

std::vector<HeadSummary> ranked_heads(const Subject& subject, const HeadsQuestion& question,
                                      const Needle& needle) {
  std::vector<HeadSummary> heads = sorted_heads(subject, question);
  if (question.find)
    sort_by(heads, [&](const HeadSummary& head) {
      const PatternScore& score = score_of_pattern(head, *question.find);
      return std::fmax(score.score, score.rest_score);
    });
  if (!needle.retrieval.empty())
    sort_by(heads, [&](const HeadSummary& head) { return needle.by(head).last; });
  const bool is_ranking = question.find || !needle.retrieval.empty();
  const std::size_t most = question.top ? static_cast<std::size_t>(*question.top)
                           : is_ranking ? kMaxRanked
                                        : heads.size();
  heads.resize(std::min(heads.size(), most));
  return heads;
}

std::vector<ReceivedKey> most_received(const Document& document, const std::vector<HeadSummary>& heads) {
  const Tensor& received = document.report.received;
  if (received.rank() != 3 || heads.empty()) return {};
  std::vector<double> sums(static_cast<std::size_t>(received.size(2)));
  for (const HeadSummary& head : heads)
    for (std::size_t j = 0; j < sums.size(); ++j)
      sums[j] += number_at(received, {head.batch, head.head, static_cast<std::int64_t>(j)});
  std::vector<ReceivedKey> keys;
  for (const std::int64_t j : detail::largest_of(sums, kMaxKeysOfAll))
    keys.push_back({j, sums[static_cast<std::size_t>(j)] / static_cast<double>(heads.size())});
  return keys;
}

}  // namespace heed::cli
