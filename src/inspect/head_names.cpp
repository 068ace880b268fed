// Naming of heads by their scores (docs/heads.md).
#include <algorithm>
#include <array>
#include <cmath>

#include "heed/inspect/reports.hpp"

namespace heed {
namespace {

struct Rule {
  std::string_view name;
  double threshold;
  bool is_shape;  // a pattern of the whole row; a pattern of a set of keys explains more
};

constexpr std::array<Rule, kHeadPatterns> kRules = {{{"previous-token", 0.3, false},
                                                     {"next-token", 0.3, false},
                                                     {"self", 0.3, false},
                                                     {"induction", 0.3, false},
                                                     {"duplicate-token", 0.3, false},
                                                     {"same-token", 0.3, false},
                                                     {"separators", 0.25, false},
                                                     {"first-token sink", 0.5, false},
                                                     {"local", 0.45, true},
                                                     {"vertical", 0.6, true},
                                                     {"uniform", 0.7, true}}};

// An unearned runner-up needs at least this share of its threshold.
constexpr double kNear = 0.5;

const Rule& rule_of(HeadPattern pattern) { return kRules[static_cast<std::size_t>(pattern)]; }

double times_threshold(const HeadName& name) { return name.score / threshold_of(name.pattern); }

bool is_place(HeadPattern pattern) {
  return pattern == HeadPattern::previous_token || pattern == HeadPattern::next_token ||
         pattern == HeadPattern::self;
}

bool is_copy(HeadPattern pattern) {
  return pattern == HeadPattern::duplicate_token || pattern == HeadPattern::same_token;
}

// A head on the previous key is also local; a head on separators is also vertical.
bool implies(HeadPattern better, HeadPattern other) {
  if (better == other || (is_copy(better) && is_copy(other))) return true;
  if (is_place(better)) return other == HeadPattern::local;
  return better == HeadPattern::separators && other == HeadPattern::vertical;
}

bool is_implied(const std::vector<HeadName>& names, HeadPattern pattern) {
  return std::any_of(names.begin(), names.end(),
                     [&](const HeadName& name) { return implies(name.pattern, pattern); });
}

// Adds the names of one kind (sets of keys or shapes) for one of the two scores, those furthest above their
// thresholds first.
void add_names(const HeadSummary& head, bool of_rest, bool shapes, std::vector<HeadName>& names) {
  std::vector<HeadName> earned;
  for (const PatternScore& one : head.patterns) {
    const HeadName name{one.pattern, of_rest ? one.rest_score : one.score, of_rest};
    if (one.named && rule_of(one.pattern).is_shape == shapes && times_threshold(name) >= 1)
      earned.push_back(name);
  }
  std::stable_sort(earned.begin(), earned.end(), [](const HeadName& a, const HeadName& b) {
    return times_threshold(a) > times_threshold(b);
  });
  for (const HeadName& name : earned)
    if (!is_implied(names, name.pattern)) names.push_back(name);
}

}  // namespace

std::string_view name_of(HeadPattern pattern) noexcept { return rule_of(pattern).name; }

double threshold_of(HeadPattern pattern) noexcept { return rule_of(pattern).threshold; }

std::vector<HeadName> HeadSummary::names() const {
  std::vector<HeadName> names;
  for (const bool of_rest : {false, true})
    for (const bool shapes : {false, true}) add_names(*this, of_rest, shapes, names);
  return names;
}

std::string_view HeadSummary::name() const {
  if (choices < kLeastRows) return "too few rows";
  const std::vector<HeadName> earned = names();
  return earned.empty() ? "mixed" : name_of(earned.front().pattern);
}

std::optional<HeadName> HeadSummary::runner_up() const {
  std::vector<HeadName> earned = names();
  if (earned.size() > 1) return earned[1];
  std::optional<HeadName> nearest;
  for (const PatternScore& one : patterns)
    for (const bool of_rest : {false, true}) {
      const HeadName name{one.pattern, of_rest ? one.rest_score : one.score, of_rest};
      if (one.rows < kLeastRows || is_implied(earned, one.pattern)) continue;
      const double least = nearest ? times_threshold(*nearest) : kNear;
      if (times_threshold(name) > least) nearest = name;
    }
  return nearest;
}

}  // namespace heed
