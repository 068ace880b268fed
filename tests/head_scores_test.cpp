// The scores behind the names of heads, compared with f64 sums over the whole matrix as defined in
// docs/heads.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "attention_support.hpp"
#include "heed/inspect/reports.hpp"

namespace {

using heed::AttentionOptions;
using heed::HeadPattern;
using heed::Tensor;
using heed::test::normal_tensor;
using Index = std::int64_t;
using Words = std::vector<std::string>;

struct Call {
  Tensor query, key;
  AttentionOptions options;
  Words words;
  Index offset = 0;  // the position of row 0
  std::vector<Index> starts = {0};
};

// One row: its weights and its allowed keys, starting at the first key of its sequence.
struct FullRow {
  Index i = 0, begin = 0, position = 0;  // position counts from begin
  std::vector<double> weights;
  std::vector<bool> allowed;

  template <class Of>
  [[nodiscard]] double sum(Of of) const {
    double sum = 0;
    for (Index j = 0; j < static_cast<Index>(weights.size()); ++j)
      if (allowed[static_cast<std::size_t>(j)]) sum += of(j);
    return sum;
  }
  [[nodiscard]] double weight(Index j) const { return weights[static_cast<std::size_t>(j)]; }
  [[nodiscard]] double keys() const {
    return sum([](Index) { return 1.0; });
  }
  [[nodiscard]] double mass() const {
    return sum([&](Index j) { return weight(j); });
  }
};

std::vector<FullRow> rows_of(const Call& call, Index h) {
  AttentionOptions exact = call.options;
  exact.kernel = heed::Kernel::reference;
  exact.need = heed::Need::weights | heed::Need::lse;
  const heed::AttentionResult result = heed::attention(call.query, call.key, call.key, exact);
  const heed::WeightTile tile = heed::attention_tile(call.query, call.key, call.options, result.lse,
                                                     {0, call.query.size(1), 0, call.key.size(1)});
  std::vector<FullRow> rows;
  for (Index i = 0; i < call.query.size(1); ++i) {
    FullRow row;
    row.i = i;
    for (const Index start : call.starts)
      if (start <= i) row.begin = start;
    row.position = i - row.begin + call.offset;
    for (Index j = row.begin; j < call.key.size(1); ++j) {
      row.weights.push_back(result.weights.at<double>(h, i, j));
      row.allowed.push_back(tile.allowed.at<bool>(0, h, i, j));
    }
    rows.push_back(row);
  }
  return rows;
}

// The row without its first key.
FullRow beside(FullRow row) {
  row.allowed[0] = false;
  return row;
}

struct Scores {
  double score = std::nan(""), rest = std::nan("");
};

double share(double part, double whole) {
  return whole > 0 ? std::clamp(part / whole, 0.0, 1.0) : std::nan("");
}

// (W - E) / (N - E) over rows that have a choice and see such keys, but not only such keys.
template <class In>
double of_set(const std::vector<FullRow>& rows, bool rest, In in) {
  double found = 0, even = 0, all = 0;
  for (const FullRow& whole : rows) {
    const FullRow row = rest ? beside(whole) : whole;
    const double keys = row.sum([&](Index j) { return in(row, j) ? 1 : 0; });
    if (row.keys() < 2 || keys == 0 || keys == row.keys()) continue;
    found += row.sum([&](Index j) { return in(row, j) ? row.weight(j) : 0; });
    even += row.mass() * keys / row.keys();
    all += rest ? row.mass() : 1;
  }
  return share(found - even, all - even);
}

double of_local(const std::vector<FullRow>& rows, bool rest) {
  double found = 0, even = 0;
  for (const FullRow& whole : rows) {
    const FullRow row = rest ? beside(whole) : whole;
    if (row.keys() < 2) continue;
    const auto distance = [&](Index j) { return std::abs(static_cast<double>(row.position - j)); };
    found += row.sum([&](Index j) { return row.weight(j) * distance(j); });
    even += row.mass() * row.sum(distance) / row.keys();
  }
  return share(even - found, even);
}

double effective_keys(const FullRow& row) {
  return std::exp(row.sum([&](Index j) {
    const double p = row.weight(j) / row.mass();
    return p > 0 ? -p * std::log(p) : 0;
  }));
}

double of_uniform(const std::vector<FullRow>& rows, bool rest) {
  double found = 0, all = 0;
  for (const FullRow& whole : rows) {
    const FullRow row = rest ? beside(whole) : whole;
    if (row.keys() < 2) continue;
    found += row.mass() * effective_keys(row) / row.keys();
    all += row.mass();
  }
  return share(found, all);
}

double of_vertical(const std::vector<FullRow>& rows, Index keys) {
  std::vector<double> columns(static_cast<std::size_t>(keys)), even = columns;
  double of_rows = 0, of_columns = 0;
  for (const FullRow& whole : rows) {
    const FullRow row = beside(whole);
    if (row.keys() == 0) continue;
    (void)row.sum([&](Index j) {
      columns[static_cast<std::size_t>(row.begin + j)] += row.weight(j);
      even[static_cast<std::size_t>(row.begin + j)] += row.mass() / row.keys();
      return 0;
    });
    of_rows += row.mass() * std::log(row.keys() / effective_keys(row));
  }
  for (std::size_t j = 0; j < columns.size(); ++j)
    if (columns[j] > 0) of_columns += columns[j] * std::log(columns[j] / even[j]);
  return share(of_columns, of_rows);
}

// (W - E) / (N - E) over all rows that have a choice, also those that lack the key.
double of_offset(const std::vector<FullRow>& rows, Index offset, bool rest) {
  double found = 0, even = 0, all = 0;
  for (const FullRow& whole : rows) {
    const FullRow row = rest ? beside(whole) : whole;
    if (row.keys() < 2) continue;
    const auto in = [&](Index j) { return j == row.position + offset; };
    found += row.sum([&](Index j) { return in(j) ? row.weight(j) : 0; });
    even += row.mass() / row.keys() * row.sum([&](Index j) { return in(j) ? 1 : 0; });
    all += rest ? row.mass() : 1;
  }
  return share(found - even, all - even);
}

Scores expected(const Call& call, const std::vector<FullRow>& rows, HeadPattern pattern, Index offset) {
  const std::set<std::string> separators = {",", "[SEP]"};
  const auto word = [&](const FullRow& row, Index j) {
    return call.words[static_cast<std::size_t>(row.begin + j)];
  };
  const auto both = [&](const auto& in) { return Scores{of_set(rows, false, in), of_set(rows, true, in)}; };
  const auto is_copy = [&](const FullRow& row, Index j) {
    return word(row, j) == call.words[static_cast<std::size_t>(call.offset + row.i)];
  };
  switch (pattern) {
    case HeadPattern::previous_token:
      return both([](const FullRow& row, Index j) { return j == row.position - 1; });
    case HeadPattern::next_token:
      return both([](const FullRow& row, Index j) { return j == row.position + 1; });
    case HeadPattern::self:
      return both([](const FullRow& row, Index j) { return j == row.position; });
    case HeadPattern::induction:
      return both(
          [&](const FullRow& row, Index j) { return j > 0 && j < row.position && is_copy(row, j - 1); });
    case HeadPattern::duplicate_token:
      return both([&](const FullRow& row, Index j) { return j < row.position && is_copy(row, j); });
    case HeadPattern::same_token:
      return both([&](const FullRow& row, Index j) { return j != row.position && is_copy(row, j); });
    case HeadPattern::separators:
      return both([&](const FullRow& row, Index j) { return j > 0 && separators.contains(word(row, j)); });
    case HeadPattern::first_token_sink:
      return {of_set(rows, false, [](const FullRow&, Index j) { return j == 0; })};
    case HeadPattern::local:
      return {of_local(rows, false), of_local(rows, true)};
    case HeadPattern::vertical:
      return {std::nan(""), of_vertical(rows, call.key.size(1))};
    case HeadPattern::fixed_offset:
      return {of_offset(rows, offset, false), of_offset(rows, offset, true)};
    default:
      return {of_uniform(rows, false), of_uniform(rows, true)};
  }
}

Words some_words(Index count, int different) {
  std::mt19937_64 engine(5);
  Words words;
  for (Index i = 0; i < count; ++i) {
    const auto draw = engine() % static_cast<std::uint64_t>(different);
    words.push_back(draw == 0 ? "," : draw == 1 ? "[SEP]" : "w" + std::to_string(draw));
  }
  return words;
}

Call self_call(Index length = 60, int different = 9) {
  Call call;
  call.query = normal_tensor({2, length, 8}, 1);
  call.key = normal_tensor({2, length, 8}, 2);
  call.words = some_words(length, different);
  return call;
}

bool agrees(double got, double wanted, double tolerance) {
  return std::isnan(wanted) ? std::isnan(got) : std::abs(got - wanted) <= tolerance;
}

void expect_agreement(const Call& call, double tolerance = 1e-9) {
  heed::ReportOptions wanted;
  wanted.query_tokens = Words(call.words.begin() + call.offset, call.words.end());
  wanted.key_tokens = call.words;
  const heed::AttentionReport report =
      heed::make_report(call.query, call.key, call.key, call.options, wanted);
  Call exact = call;
  exact.query = Tensor::copy_of(call.query, heed::DType::f64);
  exact.key = Tensor::copy_of(call.key, heed::DType::f64);
  for (Index h = 0; h < call.query.size(0); ++h) {
    const std::vector<FullRow> rows = rows_of(exact, h);
    const heed::HeadSummary& head = report.summaries.at(static_cast<std::size_t>(h));
    ASSERT_EQ(head.patterns.size(), static_cast<std::size_t>(heed::kHeadPatterns));
    for (const heed::PatternScore& got : head.patterns) {
      const Scores scores = expected(exact, rows, got.pattern, got.offset);
      EXPECT_TRUE(agrees(got.score, scores.score, tolerance) &&
                  agrees(got.rest_score, scores.rest, tolerance))
          << "head " << h << ", " << name_of(got.pattern) << ": " << got.score << " and " << got.rest_score
          << ", not " << scores.score << " and " << scores.rest;
    }
  }
}

TEST(HeadScores, AreSumsOverTheWholeMatrix) { expect_agreement(self_call()); }

TEST(HeadScores, OfACausalHeadCountTheKeysThatARowSees) {
  Call call = self_call();
  call.options.causal = true;
  expect_agreement(call);
}

TEST(HeadScores, OfAWindowCountTheKeysThatItLeaves) {
  Call call = self_call();
  call.options.window = {7, 3};
  expect_agreement(call);
}

TEST(HeadScores, OfAMaskCountTheKeysThatItLeaves) {
  Call call = self_call();
  Tensor mask({2, 60, 60}, heed::DType::boolean);
  std::mt19937_64 engine(3);
  for (bool& allowed : mask.values<bool>()) allowed = engine() % 3 != 0;
  call.options.mask = mask;
  expect_agreement(call);
}

TEST(HeadScores, OfPackedSequencesStayWithinEach) {
  Call call = self_call();
  const Tensor segments = Tensor::from<Index>({0, 25, 60}, {3});
  call.options.query_segments = call.options.key_segments = segments;
  call.options.causal = true;
  call.starts = {0, 25};
  expect_agreement(call);
}

TEST(HeadScores, OfALaterPartOfTheRowsKnowTheirPlaces) {
  Call call = self_call();
  call.query = normal_tensor({2, 25, 8}, 4);
  call.options.causal = true;
  call.options.align = heed::Align::bottom_right;
  call.offset = 35;
  expect_agreement(call);
}

TEST(HeadScores, UnderASinkLogitAreOfTheWeightThatKeysReceive) {
  Call call = self_call();
  const Tensor sinks = Tensor::from<double>({1.5, 3}, {2});
  call.options.sinks = sinks;
  expect_agreement(call);
}

// Each word's rows, and the separators' rows, are computed as separate calls here.
TEST(HeadScores, OfLongTextsAreThoseOfShortOnes) {
  for (const bool causal : {false, true}) {
    SCOPED_TRACE(causal ? "causal" : "both sides");
    Call call = self_call(200, 3);
    call.query = Tensor::copy_of(call.query, heed::DType::f32);
    call.key = Tensor::copy_of(call.key, heed::DType::f32);
    call.options.causal = causal;
    expect_agreement(call, 1e-4);  // received masses are summed in f32
    SCOPED_TRACE("window");
    call.options.window = {120, 70};
    expect_agreement(call, 1e-4);
  }
}

TEST(Separators, AreSpecialTokensAndPunctuation) {
  for (const char* token : {"[SEP]", "[CLS]", "</s>", "<|endoftext|>", "<|im_end|>", ",", ".", "...",
                            "\u2014", "\u3002", "\u0120,", "\u2581.", " ;", "##,", "(", "\u00bf"})
    EXPECT_TRUE(heed::is_separator(token)) << token;
  for (const char* token : {"", " ", "\u0120", "the", "##s", "[MASK]", "[UNK]", "<unk>", "+", "$", "=", "1",
                            ",a", "\u00e9", "<||>", "\xff", "\xe2\x80"})
    EXPECT_FALSE(heed::is_separator(token)) << token;
}

}  // namespace
