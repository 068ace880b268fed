// Naming of heads by their scores (docs/heads.md).
#include <algorithm>
#include <array>
#include <cmath>

#include "heed/inspect/reports.hpp"

namespace heed {
namespace {

// In the order in which names come: a pattern of a set of keys explains more than one of the whole row.
enum class Kind { set, offset, shape };
constexpr std::array kKinds = {Kind::set, Kind::offset, Kind::shape};

struct Rule {
  std::string_view name;
  double threshold;
  Kind kind;
};

constexpr std::array<Rule, kHeadPatterns> kRules = {{{"previous-token", 0.3, Kind::set},
                                                     {"next-token", 0.3, Kind::set},
                                                     {"self", 0.3, Kind::set},
                                                     {"induction", 0.3, Kind::set},
                                                     {"duplicate-token", 0.3, Kind::set},
                                                     {"same-token", 0.3, Kind::set},
                                                     {"separators", 0.25, Kind::set},
                                                     {"first-token sink", 0.5, Kind::set},
                                                     {"local", 0.45, Kind::shape},
                                                     {"vertical", 0.5, Kind::shape},
                                                     {"uniform", 0.7, Kind::shape},
                                                     {"fixed offset", 0.4, Kind::offset}}};

// An unearned runner-up needs at least this share of its threshold.
constexpr double kNear = 0.5;

// A head without a name is a first-token sink from this score on, because its first column is all that one
// sees in it.
constexpr double kSinkAlone = 0.4;

const Rule& rule_of(HeadPattern pattern) { return kRules[static_cast<std::size_t>(pattern)]; }

double times_threshold(const HeadName& name) { return name.score / threshold_of(name.pattern); }

bool is_place(HeadPattern pattern) {
  return pattern == HeadPattern::previous_token || pattern == HeadPattern::next_token ||
         pattern == HeadPattern::self || pattern == HeadPattern::fixed_offset;
}

bool is_copy(HeadPattern pattern) {
  return pattern == HeadPattern::duplicate_token || pattern == HeadPattern::same_token;
}

bool is_of_tokens(HeadPattern pattern) {
  return is_copy(pattern) || pattern == HeadPattern::induction || pattern == HeadPattern::separators;
}

// A head on the previous key is also local; a head on separators is also vertical. In a text that repeats
// itself, a head on copies of a token also keeps a distance.
bool implies(HeadPattern better, HeadPattern other) {
  if (better == other || (is_copy(better) && is_copy(other))) return true;
  if (is_place(better)) return other == HeadPattern::local;
  if (other == HeadPattern::fixed_offset) return is_of_tokens(better);
  return better == HeadPattern::separators && other == HeadPattern::vertical;
}

bool is_implied(const std::vector<HeadName>& names, HeadPattern pattern) {
  return std::ranges::any_of(names, [&](const HeadName& name) { return implies(name.pattern, pattern); });
}

bool is_implied_offset(const std::vector<HeadName>& names) {
  return std::ranges::any_of(names, [](const HeadName& name) {
    return name.pattern != HeadPattern::fixed_offset && implies(name.pattern, HeadPattern::fixed_offset);
  });
}

HeadName name_by(const PatternScore& one, bool of_rest) {
  return {one.pattern, of_rest ? one.rest_score : one.score, of_rest, one.offset};
}

// Adds the names of one kind for one of the two scores, those furthest above their thresholds first.
void add_names(const HeadSummary& head, bool of_rest, Kind kind, std::vector<HeadName>& names) {
  std::vector<HeadName> earned;
  for (const PatternScore& one : head.patterns) {
    const HeadName name = name_by(one, of_rest);
    if (one.named && rule_of(one.pattern).kind == kind && times_threshold(name) >= 1) earned.push_back(name);
  }
  std::ranges::stable_sort(earned, std::ranges::greater(), times_threshold);
  for (const HeadName& name : earned)
    if (!is_implied(names, name.pattern)) names.push_back(name);
}

}  // namespace

std::string_view name_of(HeadPattern pattern) noexcept { return rule_of(pattern).name; }

std::string name_of(const HeadName& name) {
  if (name.pattern != HeadPattern::fixed_offset) return std::string(name_of(name.pattern));
  return std::to_string(std::abs(name.offset)) + (name.offset < 0 ? " back" : " ahead");
}

double threshold_of(HeadPattern pattern) noexcept { return rule_of(pattern).threshold; }

std::vector<HeadName> HeadSummary::names() const {
  std::vector<HeadName> names;
  for (const bool of_rest : {false, true})
    for (const Kind kind : kKinds) add_names(*this, of_rest, kind, names);
  // A name of the second look may imply a fixed offset of the first.
  if (is_implied_offset(names))
    std::erase_if(names, [](const HeadName& name) { return name.pattern == HeadPattern::fixed_offset; });
  if (!names.empty()) return names;
  for (const PatternScore& one : patterns)
    if (one.pattern == HeadPattern::first_token_sink && one.rows >= kLeastRows && one.score >= kSinkAlone)
      names.push_back(name_by(one, false));
  return names;
}

std::string HeadSummary::name() const {
  if (choices < kLeastRows) return "too few rows";
  const std::vector<HeadName> earned = names();
  return earned.empty() ? "mixed" : name_of(earned.front());
}

std::optional<HeadName> HeadSummary::runner_up() const {
  std::vector<HeadName> earned = names();
  if (earned.size() > 1) return earned[1];
  std::optional<HeadName> nearest;
  for (const PatternScore& one : patterns)
    for (const bool of_rest : {false, true}) {
      const HeadName name = name_by(one, of_rest);
      if (one.rows < kLeastRows || is_implied(earned, one.pattern)) continue;
      const double least = nearest ? times_threshold(*nearest) : kNear;
      if (times_threshold(name) > least) nearest = name;
    }
  return nearest;
}

}  // namespace heed
