#include "inspect/token_sets.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

#include "inspect/each_row.hpp"
#include "inspect/key_runs.hpp"

namespace heed::detail {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

enum class Set { earlier, later, followers, separators };

// For each token its keys, ascending; and for each row the number of its token, -1 if no key has it.
struct TokenPlaces {
  std::vector<std::vector<std::int64_t>> keys;
  std::vector<std::int64_t> of_row;
  std::vector<std::int64_t> separators;
};

// `Token` is an id or a text.
template <class Token>
void add_copies(const std::vector<Token>& query_tokens, const std::vector<Token>& key_tokens,
                TokenPlaces& places) {
  std::unordered_map<Token, std::int64_t> numbers;
  for (std::size_t j = 0; j < key_tokens.size(); ++j) {
    const auto number =
        numbers.try_emplace(key_tokens[j], static_cast<std::int64_t>(numbers.size())).first->second;
    if (number == static_cast<std::int64_t>(places.keys.size())) places.keys.emplace_back();
    places.keys[static_cast<std::size_t>(number)].push_back(static_cast<std::int64_t>(j));
  }
  for (const Token& token : query_tokens) {
    const auto found = numbers.find(token);
    places.of_row.push_back(found == numbers.end() ? -1 : found->second);
  }
}

bool has_ids(const AttentionReport& report) {
  return !report.query_token_ids.empty() && !report.key_token_ids.empty();
}

bool has_texts(const AttentionReport& report) {
  return !report.query_tokens.empty() && !report.key_tokens.empty();
}

TokenPlaces places_of(const AttentionReport& report) {
  TokenPlaces places;
  if (has_ids(report))
    add_copies(report.query_token_ids, report.key_token_ids, places);
  else
    add_copies(report.query_tokens, report.key_tokens, places);
  for (std::size_t j = 0; j < report.key_tokens.size(); ++j)
    if (is_separator(report.key_tokens[j])) places.separators.push_back(static_cast<std::int64_t>(j));
  return places;
}

// The keys of a list in [begin, end), as indices into the list.
KeyRange run_within(const std::vector<std::int64_t>& keys, std::int64_t begin, std::int64_t end) {
  const auto first = std::lower_bound(keys.begin(), keys.end(), begin);
  const auto last = std::lower_bound(first, keys.end(), std::max(begin, end));
  return {first - keys.begin(), last - keys.begin()};
}

class SetFiller {
 public:
  SetFiller(const Problem& p, const AttentionReport& report, const TokenPlaces& places, Set set)
      : p_(p),
        report_(report),
        places_(places),
        set_(set),
        gathers_(report.kernel == "fused" && can_gather(p)),
        lse_(lse_operand(p, report.lse, 4)) {}

  SetWeights fill() {
    SetWeights result{row_tensor(p_), Tensor({p_.batch, has_masks() ? p_.heads : 1, p_.query_length})};
    weight_ = target_rows(result.weight);
    keys_ = target_rows(result.keys);
    if (!has_masks()) count_keys();
    done_.assign(static_cast<std::size_t>(p_.batch * p_.query_length), 0);
    if (gathers_)
      for (const Segment& segment : p_.segments) gather(segment);
    for_each_row(
        p_, "sets of keys", report_.lse,
        [&](std::int64_t batch, std::int64_t i) { return done_[row_index(batch, i)] == 0; },
        [&](const Segment& segment, const Row& row, RowWeights& weights) { sum(segment, row, weights); });
    return result;
  }

 private:
  [[nodiscard]] bool has_masks() const { return p_.mask || p_.bias || !p_.sparse_masks.empty(); }
  [[nodiscard]] std::size_t row_index(std::int64_t batch, std::int64_t i) const {
    return static_cast<std::size_t>(batch * p_.query_length + i);
  }

  // The list with the row's keys, or nullptr.
  [[nodiscard]] const std::vector<std::int64_t>* list_of(std::int64_t i) const {
    if (set_ == Set::separators) return &places_.separators;
    const std::int64_t token = places_.of_row[static_cast<std::size_t>(i)];
    return token < 0 ? nullptr : &places_.keys[static_cast<std::size_t>(token)];
  }

  // The row's part of its list; a follower is one key after the copy in the list.
  [[nodiscard]] KeyRange run_of(const std::vector<std::int64_t>& list, const Segment& segment,
                                std::int64_t position) const {
    const KeyRange seen = keys_of(p_, segment, position);
    const std::int64_t own = segment.key_begin + position;
    if (set_ == Set::earlier) return run_within(list, seen.begin, std::min(seen.end, own));
    if (set_ == Set::later) return run_within(list, std::max(seen.begin, own + 1), seen.end);
    if (set_ == Set::followers)
      return run_within(list, std::max(seen.begin - 1, segment.key_begin), std::min(seen.end, own) - 1);
    return run_within(list, std::max(seen.begin, segment.key_begin + 1), seen.end);
  }

  [[nodiscard]] std::int64_t shift() const { return set_ == Set::followers ? 1 : 0; }

  // Counts once for all heads if there are no masks, because they then attend the same keys.
  void count_keys() const {
    for (const Segment& segment : p_.segments)
      for (std::int64_t i = segment.query_begin; i < segment.query_end; ++i) {
        const auto* list = list_of(i);
        const KeyRange run =
            list ? run_of(*list, segment, i - segment.query_begin + segment.offset) : KeyRange{};
        write(keys_, static_cast<double>(run.end - run.begin), segment.batch, 0, i);
      }
  }

  void sum(const Segment& segment, const Row& row, RowWeights& weights) const {
    const auto* list = list_of(row.i);
    const KeyRange run = list ? run_of(*list, segment, row.position) : KeyRange{};
    double sum = 0, count = 0;
    for (std::int64_t k = run.begin; k < run.end; ++k) {
      const std::int64_t key = (*list)[static_cast<std::size_t>(k)] + shift();
      sum += weights.quick_weight(key);
      if (has_masks()) count += weights.allows(key) ? 1 : 0;
    }
    write(weight_, sum, row.batch, row.head, row.i);
    if (has_masks()) write(keys_, count, row.batch, row.head, row.i);
  }

  void gather(const Segment& segment) {
    if (set_ == Set::separators) {
      std::vector<std::int64_t> rows;
      for (std::int64_t i = segment.query_begin; i < segment.query_end; ++i) rows.push_back(i);
      return gather_rows(segment, std::move(rows), places_.separators);
    }
    std::vector<std::vector<std::int64_t>> rows(places_.keys.size());
    for (std::int64_t i = segment.query_begin; i < segment.query_end; ++i)
      if (const std::int64_t token = places_.of_row[static_cast<std::size_t>(i)]; token >= 0)
        rows[static_cast<std::size_t>(token)].push_back(i);
    for (std::size_t token = 0; token < rows.size(); ++token)
      gather_rows(segment, std::move(rows[token]), places_.keys[token]);
  }

  void gather_rows(const Segment& segment, std::vector<std::int64_t> rows,
                   const std::vector<std::int64_t>& list) {
    if (rows.size() < kWorthGathering || list.size() < kWorthGathering) return;
    KeyRuns runs;
    runs.segment = &segment;
    std::int64_t least = static_cast<std::int64_t>(list.size()), most = 0;
    for (const std::int64_t i : rows) {
      const KeyRange run = run_of(list, segment, i - segment.query_begin + segment.offset);
      runs.runs.push_back(run);
      least = std::min(least, run.begin);
      most = std::max(most, run.end);
    }
    if (most - least < static_cast<std::int64_t>(kWorthGathering)) return;
    for (std::int64_t k = least; k < most; ++k)
      runs.keys.push_back(list[static_cast<std::size_t>(k)] + shift());
    for (KeyRange& run : runs.runs) run = {run.begin - least, run.end - least};
    for (const std::int64_t i : rows) done_[row_index(segment.batch, i)] = 1;
    runs.rows = std::move(rows);
    fill_runs(p_, lse_, runs, weight_);
  }

  const Problem& p_;
  const AttentionReport& report_;
  const TokenPlaces& places_;
  Set set_;
  bool gathers_;
  Operand lse_;
  Output weight_, keys_;
  std::vector<char> done_;  // [B, Lq]
};

// Sets induction to NaN in rows without an earlier copy whose follower precedes the row within its segment:
// these rows cannot show induction. If only a window or a mask hides the follower, induction is not NaN.
void forget_rows_without_copies(const Problem& p, const TokenPlaces& places, Tensor& induction) {
  const Output to = target_rows(induction);
  for (const Segment& segment : p.segments)
    for (std::int64_t i = segment.query_begin; i < segment.query_end; ++i) {
      const std::int64_t token = places.of_row[static_cast<std::size_t>(i)];
      const std::int64_t own = segment.key_begin + i - segment.query_begin + segment.offset;
      KeyRange copies{};
      if (token >= 0)
        copies = run_within(places.keys[static_cast<std::size_t>(token)], segment.key_begin,
                            std::min(own, segment.key_end) - 1);
      for (std::int64_t h = 0; h < p.heads && copies.begin == copies.end; ++h)
        write(to, kNaN, segment.batch, h, i);
    }
}

}  // namespace

bool tells_copies(const AttentionReport& report) { return has_ids(report) || has_texts(report); }

bool is_copy(const AttentionReport& report, std::int64_t row, std::int64_t key) {
  const auto i = static_cast<std::size_t>(row), j = static_cast<std::size_t>(key);
  return has_ids(report) ? report.query_token_ids[i] == report.key_token_ids[j]
                         : report.query_tokens[i] == report.key_tokens[j];
}

TokenSets fill_token_sets(const Problem& p, AttentionReport& report) {
  TokenSets sets;
  if (!tells_copies(report)) return sets;
  const TokenPlaces places = places_of(report);
  const auto filled = [&](Set set) { return SetFiller(p, report, places, set).fill(); };
  sets.earlier = filled(Set::earlier);
  sets.later = filled(Set::later);
  sets.followers = filled(Set::followers);
  if (has_texts(report)) sets.separators = filled(Set::separators);
  report.induction = Tensor::copy_of(sets.followers.weight);
  forget_rows_without_copies(p, places, report.induction);
  return sets;
}

}  // namespace heed::detail
