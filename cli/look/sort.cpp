#include "look/sort.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

namespace heed::cli {
namespace {

using Value = double (*)(const HeadSummary&);

constexpr std::array<std::pair<const char*, Value>, 9> kColumns = {{
    {"score", &score_of_name},
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

}  // namespace

const std::vector<std::string>& sort_columns() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list = {"name"};
    for (const auto& [name, value] : kColumns) list.emplace_back(name);
    for (int i = 0; i < kHeadPatterns; ++i) {
      const std::string pattern = pattern_column(static_cast<HeadPattern>(i));
      if (std::find(list.begin(), list.end(), pattern) == list.end()) list.push_back(pattern);
    }
    return list;
  }();
  return names;
}

std::vector<std::string> pattern_columns() {
  std::vector<std::string> names;
  for (int i = 0; i < kHeadPatterns; ++i) names.push_back(pattern_column(static_cast<HeadPattern>(i)));
  return names;
}

double score_of_name(const HeadSummary& head) {
  const std::vector<HeadName> names = head.names();
  return names.empty() ? std::nan("") : names.front().score;
}

void sort_heads(std::vector<HeadSummary>& heads, const std::string& column) {
  if (column == "name")
    return std::stable_sort(heads.begin(), heads.end(),
                            [](const HeadSummary& a, const HeadSummary& b) { return a.name() < b.name(); });
  const auto found = std::find_if(kColumns.begin(), kColumns.end(),
                                  [&](const auto& known) { return known.first == column; });
  const auto key = [&](const HeadSummary& head) {
    const double value = found != kColumns.end() ? found->second(head) : score_of(head, column);
    return std::isnan(value) ? -std::numeric_limits<double>::infinity() : value;
  };
  std::stable_sort(heads.begin(), heads.end(),
                   [&](const HeadSummary& a, const HeadSummary& b) { return key(a) > key(b); });
}

}  // namespace heed::cli
