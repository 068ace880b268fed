#include "inspect/pattern_scores.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <limits>
#include <vector>

#include "attention/problem/score_rules.hpp"
#include "heed/parallel.hpp"
#include "inspect/rows.hpp"
#include "inspect/single_weights.hpp"

namespace heed {
namespace detail {
namespace {

// A row with less weight on its keys (the rest is on a sink logit) is ignored.
constexpr double kLeastMass = 1e-6;
// Share of all weight; the weight without the first key names a head only above it.
constexpr double kLeastRest = 0.1;
constexpr std::int64_t kKeysAtOnce = 256;
constexpr std::size_t kSampledRows = 32;  // their weights propose an offset

// A row that sees keys and is not NaN.
struct SeenRow {
  std::int64_t i = 0, position = 0;
  const Segment* segment = nullptr;
  AllowedKeys allowed, beside;     // all allowed keys, and without the first
  double mass = 0, first = 0;      // weight on all keys, on the first key
  double rest = 0;                 // weight on the other keys
  double entropy = 0, others = 0;  // entropy, and its terms without the first key
  bool sees_first = false;

  [[nodiscard]] bool chooses() const { return allowed.keys >= 2; }
  [[nodiscard]] bool chooses_beside() const { return beside.keys >= 2 && rest > kLeastMass; }
};

// A row's weight on a set of keys, their number, and whether the first key is one of them.
struct InSet {
  double weight = 0, keys = 0;
  bool has_first = false;
};

double entropy_term(double weight) { return weight > 0 ? -weight * std::log(weight) : 0; }

// exp(entropy) of weights that sum to `mass`, after normalisation to 1.
double effective_keys(double entropy, double mass) { return std::exp(entropy / mass + std::log(mass)); }

class Scorer {
 public:
  Scorer(const Problem& p, const AttentionReport& report, const TokenSets& sets,
         const std::vector<AllowedKeys>& allowed, HeadSummary& summary)
      : p_(p), report_(report), sets_(sets), summary_(summary) {
    find_rows(allowed);
  }

  void score() {
    summary_.choices = std::ranges::count_if(rows_, [](const SeenRow& row) { return row.chooses(); });
    score_places();
    score_tokens();
    const auto on_first = [](const SeenRow& row) {
      return InSet{row.first, row.sees_first ? 1.0 : 0.0, true};
    };
    add_set(HeadPattern::first_token_sink, on_first);
    add_local();
    add_vertical();
    add_uniform();
    add_fixed_offset();
  }

 private:
  [[nodiscard]] RowReader reader(const Tensor& tensor) const {
    return {tensor, summary_.batch, summary_.head};
  }

  void find_rows(const std::vector<AllowedKeys>& allowed) {
    const RowReader lse = reader(report_.lse), first = reader(report_.first);
    const RowReader entropy = reader(report_.entropy);
    for (const Segment& segment : p_.segments)
      for (std::int64_t i = segment.query_begin; segment.batch == summary_.batch && i < segment.query_end;
           ++i) {
        SeenRow row;
        row.allowed = allowed[static_cast<std::size_t>(i)];
        if (row.allowed.keys == 0 || std::isnan(lse(i))) continue;
        row.i = i;
        row.position = i - segment.query_begin + segment.offset;
        row.segment = &segment;
        row.mass = p_.sinks ? 1 - std::exp(read(p_.sinks, 0, summary_.head) - lse(i)) : 1;
        row.first = first(i);
        row.entropy = entropy(i);
        row.sees_first = allows(row, segment.key_begin);
        look_beside_first(row);
        rows_.push_back(row);
      }
  }

  static void look_beside_first(SeenRow& row) {
    row.beside = row.allowed;
    row.rest = std::max(0.0, row.mass - row.first);
    row.others = std::max(0.0, row.entropy - entropy_term(row.first));
    if (!row.sees_first) return;
    const double keys = row.allowed.keys - 1;
    const double distances =
        row.allowed.distance * row.allowed.keys - std::abs(static_cast<double>(row.position));
    row.beside = {keys, keys > 0 ? distances / keys : 0};
  }

  [[nodiscard]] bool allows(const SeenRow& row, std::int64_t key) const {
    if (key < row.segment->key_begin || key >= row.segment->key_end) return false;
    return is_allowed(p_, *row.segment, place_of(row), key);
  }

  [[nodiscard]] Row place_of(const SeenRow& row) const {
    return {summary_.batch, summary_.head, summary_.head / (p_.heads / p_.kv_heads), row.i, row.position};
  }

  // The weight on a set of keys beyond uniform weights, as a share of the possible maximum.
  template <class Find>
  void add_set(HeadPattern pattern, Find find) {
    PatternScore score{.pattern = pattern};
    for (const SeenRow& row : rows_) {
      const InSet set = find(row);
      if (row.chooses() && set.keys > 0 && set.keys < row.allowed.keys) {
        const double even = row.mass * set.keys / row.allowed.keys;
        score.all.part += set.weight - even;
        score.all.whole += 1 - even;
        ++score.rows;
      }
      const bool shares_first = set.has_first && row.sees_first;
      const double keys = set.keys - (shares_first ? 1 : 0);
      if (!row.chooses_beside() || keys <= 0 || keys >= row.beside.keys) continue;
      const double even = row.rest * keys / row.beside.keys;
      score.rest.part += set.weight - (shares_first ? row.first : 0) - even;
      score.rest.whole += row.rest - even;
    }
    add(score);
  }

  // Scores of keys that are determined by the row's position.
  void score_places() {
    const auto add = [&](HeadPattern pattern, const Tensor& tensor, std::int64_t away) {
      const RowReader weight = reader(tensor);
      add_set(pattern, [&, weight, away](const SeenRow& row) {
        const std::int64_t key = row.segment->key_begin + row.position + away;
        return InSet{weight(row.i), allows(row, key) ? 1.0 : 0.0, key == row.segment->key_begin};
      });
    };
    add(HeadPattern::previous_token, report_.previous, -1);
    add(HeadPattern::next_token, report_.next, 1);
    add(HeadPattern::self, report_.self, 0);
  }

  struct SetReader {
    RowReader weight, keys;
  };

  void score_tokens() {
    const auto add = [&](HeadPattern pattern, std::initializer_list<const SetWeights*> parts, bool copies) {
      std::vector<SetReader> readers;
      for (const SetWeights* part : parts)
        if (part->weight.rank() == 3) readers.push_back({reader(part->weight), reader(part->keys)});
      add_set(pattern, [&](const SeenRow& row) {
        InSet set;
        for (const SetReader& part : readers) {
          set.weight += part.weight(row.i);
          set.keys += part.keys(row.i);
        }
        set.has_first = copies && set.keys > 0 && is_copy_of_first(row);
        return set;
      });
    };
    add(HeadPattern::induction, {&sets_.followers}, false);
    add(HeadPattern::duplicate_token, {&sets_.earlier}, true);
    add(HeadPattern::same_token, {&sets_.earlier, &sets_.later}, true);
    add(HeadPattern::separators, {&sets_.separators}, false);
  }

  [[nodiscard]] bool is_copy_of_first(const SeenRow& row) const {
    return row.position > 0 && is_copy(report_, row.i, row.segment->key_begin);
  }

  // Reduction of the mean distance compared with uniform weights.
  void add_local() {
    const RowReader distance = reader(report_.distance);
    PatternScore score{.pattern = HeadPattern::local, .rows = summary_.choices};
    for (const SeenRow& row : rows_) {
      const auto add = [](PatternShare& share, double even, double found) {
        share.part += even - found;
        share.whole += even;
      };
      const double found = distance(row.i);
      if (row.chooses()) add(score.all, row.mass * row.allowed.distance, found);
      const double of_first = row.first * std::abs(static_cast<double>(row.position));
      if (row.chooses_beside()) add(score.rest, row.rest * row.beside.distance, found - of_first);
    }
    add(score);
  }

  // Effective number of keys as a share of the allowed keys.
  void add_uniform() {
    PatternScore score{.pattern = HeadPattern::uniform, .rows = summary_.choices};
    for (const SeenRow& row : rows_) {
      const auto add = [](PatternShare& share, double entropy, double mass, double keys) {
        share.part += mass * effective_keys(entropy, mass) / keys;
        share.whole += mass;
      };
      if (row.chooses() && row.mass > kLeastMass) add(score.all, row.entropy, row.mass, row.allowed.keys);
      if (row.chooses_beside()) add(score.rest, row.others, row.rest, row.beside.keys);
    }
    add(score);
  }

  // The share of the rows' deviation from uniform weights that all rows have in common. Both are measured as
  // divergences from uniform weights.
  void add_vertical() {
    PatternScore score{.pattern = HeadPattern::vertical, .rows = summary_.choices};
    if (report_.received.rank() == 3) {
      const std::vector<double> even = even_columns();
      const RowReader received = reader(report_.received);
      std::vector<bool> is_first(even.size());
      for (const Segment& segment : p_.segments)
        if (segment.batch == summary_.batch && segment.key_begin < segment.key_end)
          is_first[static_cast<std::size_t>(segment.key_begin)] = true;
      for (std::size_t j = 0; j < even.size(); ++j)
        if (const double column = received(static_cast<std::int64_t>(j)); !is_first[j] && !(column <= 0))
          score.rest.part += even[j] > 0 ? column * std::log(column / even[j]) : 0;
      for (const SeenRow& row : rows_)
        if (row.chooses_beside())
          score.rest.whole += row.rest * std::log(row.beside.keys / effective_keys(row.others, row.rest));
    }
    add(score);
  }

  // The weight that each key would receive if the rest of every row were uniform.
  [[nodiscard]] std::vector<double> even_columns() const {
    std::vector<double> columns(static_cast<std::size_t>(p_.key_length) + 1);
    if (p_.mask || p_.bias || !p_.sparse_masks.empty()) {
      add_masked_rows(columns);
    } else {
      for (const SeenRow& row : rows_) {  // marks both ends of each row's keys, then takes the running sum
        if (!(row.beside.keys > 0)) continue;
        const KeyRange keys = keys_of(p_, *row.segment, row.position);
        const double share = row.rest / row.beside.keys;
        columns[static_cast<std::size_t>(keys.begin + (row.sees_first ? 1 : 0))] += share;
        columns[static_cast<std::size_t>(keys.end)] -= share;
      }
      for (std::size_t j = 1; j < columns.size(); ++j) columns[j] += columns[j - 1];
    }
    columns.pop_back();
    return columns;
  }

  // The offset with the most weight in rows spread over the text. -1, 0 and 1 have names of their own.
  [[nodiscard]] std::int64_t heaviest_offset(RowWeights& weights) const {
    const RowReader lse = reader(report_.lse);
    const std::size_t sampled = std::min(rows_.size(), kSampledRows);
    if (sampled == 0) return 0;
    const auto [nearest, farthest] = std::ranges::minmax_element(rows_, {}, &SeenRow::position);
    const std::int64_t least = -farthest->position;
    std::vector<double> sums(static_cast<std::size_t>(p_.key_length - nearest->position - least));
    for (std::size_t n = 0; n < sampled; ++n) {
      const SeenRow& row = rows_[(2 * n + 1) * rows_.size() / (2 * sampled)];
      const KeyRange keys = keys_of(p_, *row.segment, row.position);
      weights.set_row(*row.segment, place_of(row), lse(row.i));
      for (std::int64_t key = keys.begin; key < keys.end; ++key)
        if (const std::int64_t offset = key - row.segment->key_begin - row.position; std::abs(offset) > 1)
          sums[static_cast<std::size_t>(offset - least)] += weights.quick_weight(key);
    }
    const auto most = std::ranges::max_element(sums);
    return *most > 0 ? least + (most - sums.begin()) : 0;
  }

  // Rows that lack the key count as rows without weight on it, because the offset is chosen by the weights: a
  // few rows of a short text would always agree on one.
  void add_fixed_offset() {
    RowWeights weights(p_);
    PatternScore score{.pattern = HeadPattern::fixed_offset, .offset = heaviest_offset(weights)};
    const RowReader lse = reader(report_.lse);
    for (const SeenRow& row : rows_) {
      if (score.offset == 0 || !row.chooses()) continue;
      const std::int64_t key = row.segment->key_begin + row.position + score.offset;
      const bool has = allows(row, key);
      const double even = has ? row.mass / row.allowed.keys : 0;
      weights.set_row(*row.segment, place_of(row), lse(row.i));
      const double weight = weights.weight(key);
      score.all.part += weight - even;
      score.all.whole += 1 - even;
      score.rows += has ? 1 : 0;
      if (!row.chooses_beside()) continue;
      const bool is_beside = has && key != row.segment->key_begin;
      const double even_beside = is_beside ? row.rest / row.beside.keys : 0;
      score.rest.part += is_beside ? weight - even_beside : 0;
      score.rest.whole += row.rest - even_beside;
    }
    add(score);
  }

  void add_masked_rows(std::vector<double>& columns) const {
    parallel_for((p_.key_length + kKeysAtOnce - 1) / kKeysAtOnce, p_.threads, [&](std::int64_t block, int) {
      for (const SeenRow& row : rows_) {
        const KeyRange keys = keys_of(p_, *row.segment, row.position);
        const std::int64_t begin = std::max(block * kKeysAtOnce, keys.begin + (row.sees_first ? 1 : 0));
        for (std::int64_t j = begin; j < std::min((block + 1) * kKeysAtOnce, keys.end); ++j)
          if (allows(row, j)) columns[static_cast<std::size_t>(j)] += row.rest / row.beside.keys;
      }
    });
  }

  void add(PatternScore score) {
    complete_score(score);
    summary_.patterns.push_back(score);
  }

  const Problem& p_;
  const AttentionReport& report_;
  const TokenSets& sets_;
  HeadSummary& summary_;
  std::vector<SeenRow> rows_;
};

}  // namespace

RowReader::RowReader(const Tensor& tensor, std::int64_t batch, std::int64_t head)
    : batch_(batch), head_(head) {
  const TensorView view = tensor.view();
  const bool for_all_heads = view.shape()[1] == 1;
  from_ = {view.data(),
           view.dtype(),
           {view.strides()[0], for_all_heads ? 0 : view.strides()[1], view.strides()[2], 0}};
}

double RowReader::operator()(std::int64_t i) const { return read(from_, batch_, head_, i); }

void complete_score(PatternScore& score) {
  constexpr std::int64_t kLeastOffsetRows = 3;
  score.score = score.all.score();
  score.rest_score = score.pattern == HeadPattern::first_token_sink ? std::numeric_limits<double>::quiet_NaN()
                                                                    : score.rest.score();
  if (score.rest.whole < kLeastRest * score.all.whole)
    score.rest_score = std::numeric_limits<double>::quiet_NaN();
  const double least = threshold_of(score.pattern);
  // The first rows of a text have no key at the offset, so that more rows are needed.
  const std::int64_t least_rows =
      score.pattern == HeadPattern::fixed_offset ? kLeastOffsetRows + std::abs(score.offset) : kLeastRows;
  score.named = score.rows >= least_rows && (score.score >= least || score.rest_score >= least);
}

void score_patterns(const Problem& problem, const AttentionReport& report, const TokenSets& sets,
                    const std::vector<AllowedKeys>& allowed, HeadSummary& summary) {
  Scorer(problem, report, sets, allowed, summary).score();
}

}  // namespace detail

double PatternShare::score() const noexcept {
  return whole > 0 ? std::clamp(part / whole, 0.0, 1.0) : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace heed
