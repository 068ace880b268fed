// The rules that name heads, on weights made by hand: the query is 0, and the bias the logarithm of the
// weights.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "heed/inspect.hpp"

namespace {

using heed::AttentionOptions;
using heed::HeadPattern;
using heed::HeadSummary;
using heed::Tensor;
using Index = std::int64_t;
using Words = std::vector<std::string>;

// The summary of a causal head with these weights, row by row (they need not sum to 1).
HeadSummary summary_of(Index length, const std::function<double(Index, Index)>& weight, Words tokens = {},
                       AttentionOptions options = {.causal = true}) {
  const Tensor zero({length, 1});
  Tensor bias({length, length});
  for (Index i = 0; i < length; ++i)
    for (Index j = 0; j < length; ++j) bias.at<float>(i, j) = static_cast<float>(std::log(weight(i, j)));
  options.bias = bias.view();
  heed::ReportOptions wanted;
  wanted.query_tokens = std::move(tokens);
  return heed::make_report(zero, zero, zero, options, wanted).summaries.at(0);
}

double score_of(const HeadSummary& summary, HeadPattern pattern) {
  return summary.patterns.at(static_cast<std::size_t>(pattern)).score;
}

constexpr double kSmall = 1e-3;
// Bias and lse are f32.
constexpr double kTolerance = 1e-5;

TEST(HeadNames, PreviousTokenIsWeightOnTheKeyBefore) {
  const HeadSummary head = summary_of(20, [](Index i, Index j) { return j == i - 1 ? 1 : kSmall / 20; });
  EXPECT_EQ(head.name(), "previous-token");
  EXPECT_GT(score_of(head, HeadPattern::previous_token), 0.99);
  EXPECT_TRUE(head.patterns[0].named);
}

TEST(HeadNames, PreviousTokenScoreIsTheMeanOverRowsWithAChoice) {
  // Row 0 has one key only. Rows 1 to 3 give a quarter, a half and three quarters to the key before.
  const HeadSummary head = summary_of(4, [](Index i, Index j) {
    const double share = 0.25 * static_cast<double>(i);
    if (j == i - 1) return share;
    return i == 0 ? 1 : (1 - share) / static_cast<double>(i);
  });
  EXPECT_NEAR(score_of(head, HeadPattern::previous_token), 0.5, kTolerance);
  EXPECT_NEAR(head.previous, 1.5 / 4, kTolerance);
}

TEST(HeadNames, FirstTokenSinkIsWeightOnTheFirstKey) {
  const HeadSummary head = summary_of(20, [](Index, Index j) { return j == 0 ? 1 : kSmall; });
  EXPECT_EQ(head.name(), "first-token sink");
  EXPECT_NEAR(head.first, score_of(head, HeadPattern::first_token_sink), 0.01);
}

TEST(HeadNames, LocalIsNearnessBesideEvenWeights) {
  const HeadSummary head =
      summary_of(64, [](Index i, Index j) { return std::exp(-0.5 * std::abs(static_cast<double>(i - j))); });
  EXPECT_EQ(head.name(), "local");
  EXPECT_FALSE(head.patterns[0].named);
}

TEST(HeadNames, UniformIsTheShareOfKeysThatTheEntropyAmountsTo) {
  const HeadSummary head = summary_of(20, [](Index, Index) { return 0.3; });
  EXPECT_EQ(head.name(), "uniform");
  EXPECT_NEAR(score_of(head, HeadPattern::uniform), 1, kTolerance);
  EXPECT_NEAR(score_of(head, HeadPattern::local), 0, kTolerance);
  // Half of the keys of each row evenly: exp(entropy) is half of their number.
  const HeadSummary half = summary_of(20, [](Index, Index j) { return j % 2 == 0 ? 1 : 0; }, {}, {});
  // A key of weight 0 (a bias of -inf) is forbidden: what is left is even.
  EXPECT_NEAR(score_of(half, HeadPattern::uniform), 1, kTolerance);
  const HeadSummary almost = summary_of(20, [](Index, Index j) { return j % 2 == 0 ? 1 : 1e-12; }, {}, {});
  EXPECT_NEAR(score_of(almost, HeadPattern::uniform), 0.5, kTolerance);
}

TEST(HeadNames, InductionIsWeightOnWhatFollowedEarlierCopies) {
  const Words tokens = {"a", "b", "c", "a", "b", "c", "a", "b"};
  // Three back, less one for the copy, is the token after the earlier copy.
  const HeadSummary head = summary_of(
      8, [](Index i, Index j) { return j == std::max<Index>(0, i - 2) ? 1 : kSmall; }, tokens);
  EXPECT_EQ(head.name(), "induction");
  EXPECT_GT(head.induction, 0.98);
  EXPECT_EQ(score_of(head, HeadPattern::induction), head.induction);
}

TEST(HeadNames, InductionCannotBeSaidWithoutTokensOrCopies) {
  const auto even = [](Index, Index) { return 1.0; };
  EXPECT_TRUE(std::isnan(summary_of(3, even).induction));
  EXPECT_TRUE(std::isnan(summary_of(3, even, {"a", "b", "c"}).induction));
  // The token after the earlier copy of the last one is itself: that is not looking back.
  EXPECT_TRUE(std::isnan(summary_of(2, even, {"a", "a"}).induction));
}

TEST(HeadNames, NoRuleNoName) {
  const HeadSummary head =
      summary_of(40, [](Index i, Index j) { return (i * 7 + j * 13) % 11 == 0 ? 1 : 1e-3; });
  EXPECT_EQ(head.name(), "mixed");
  for (const heed::PatternScore& score : head.patterns) EXPECT_FALSE(score.named);
}

TEST(HeadNames, AHeadWithoutAChoiceHasNoScores) {
  const HeadSummary head = summary_of(1, [](Index, Index) { return 1.0; });
  EXPECT_EQ(head.name(), "mixed");
  EXPECT_EQ(head.rows, 1);
  EXPECT_NEAR(head.self, 1, kTolerance);
  for (const heed::PatternScore& score : head.patterns) EXPECT_TRUE(std::isnan(score.score));
}

TEST(HeadNames, ASinkLogitTakesFromSharesButNotFromEvenness) {
  const Tensor sinks = Tensor::from<float>({std::log(20.0F)}, {1});
  AttentionOptions options;
  options.sinks = sinks.view();
  const HeadSummary head = summary_of(
      20, [](Index, Index) { return 1.0; }, {}, options);
  EXPECT_NEAR(head.first, 0.025, kTolerance);
  EXPECT_NEAR(score_of(head, HeadPattern::uniform), 1, kTolerance);
  EXPECT_NEAR(score_of(head, HeadPattern::local), 0, kTolerance);
}

TEST(HeadNames, TheMostReceivedKeysComeLargestFirst) {
  const HeadSummary head =
      summary_of(4,
                 [](Index, Index j) {
                   return std::vector<double>{0.1, 0.4, 0.2, 0.3}[static_cast<std::size_t>(j)];
                 },
                 {}, {});
  EXPECT_EQ(head.most_received, (std::vector<Index>{1, 3, 2, 0}));
  EXPECT_NEAR(head.most_received_weight[0], 1.6, kTolerance);
}

}  // namespace
