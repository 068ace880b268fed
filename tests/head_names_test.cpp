// The rules that name heads, on hand-made weights: the query is 0, and the bias is the logarithm of the
// weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "heed/error.hpp"
#include "heed/inspect/reports.hpp"

namespace {

using heed::AttentionOptions;
using heed::HeadPattern;
using heed::HeadSummary;
using heed::Tensor;
using Index = std::int64_t;
using Words = std::vector<std::string>;

// The summary of a causal head with these weights, row by row (rows need not sum to 1).
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

TEST(HeadNames, PreviousTokenScoreIsWhatEvenWeightsDoNotExplain) {
  // Row 0 has only one key. Rows 1 to 3 give a quarter, a half and three quarters to the previous key.
  const HeadSummary head = summary_of(4, [](Index i, Index j) {
    const double share = 0.25 * static_cast<double>(i);
    if (j == i - 1) return share;
    return i == 0 ? 1 : (1 - share) / static_cast<double>(i);
  });
  // Even weights would give 1/2, 1/3 and 1/4.
  const double even = 13.0 / 12;
  EXPECT_NEAR(score_of(head, HeadPattern::previous_token), (1.5 - even) / (3 - even), kTolerance);
  EXPECT_NEAR(head.previous, 1.5 / 4, kTolerance);
}

TEST(HeadNames, FirstTokenSinkIsWeightOnTheFirstKey) {
  const HeadSummary head = summary_of(20, [](Index, Index j) { return j == 0 ? 1 : kSmall; });
  EXPECT_EQ(head.name(), "first-token sink");
  EXPECT_NEAR(head.first, score_of(head, HeadPattern::first_token_sink), 0.01);
}

TEST(HeadNames, LocalIsNearnessBesideEvenWeights) {
  const HeadSummary head =
      summary_of(64, [](Index i, Index j) { return std::exp(-0.2 * std::abs(static_cast<double>(i - j))); });
  EXPECT_EQ(head.name(), "local");
}

TEST(HeadNames, UniformIsTheShareOfKeysThatTheEntropyAmountsTo) {
  const HeadSummary head = summary_of(20, [](Index, Index) { return 0.3; });
  EXPECT_EQ(head.name(), "uniform");
  EXPECT_NEAR(score_of(head, HeadPattern::uniform), 1, kTolerance);
  EXPECT_NEAR(score_of(head, HeadPattern::local), 0, kTolerance);
  // Half of the keys have weight 0, a bias of -inf, so they are forbidden and the rest are even. With tiny
  // weights instead (`almost`), exp(entropy) is half the number of keys.
  const HeadSummary half = summary_of(20, [](Index, Index j) { return j % 2 == 0 ? 1 : 0; }, {}, {});
  EXPECT_NEAR(score_of(half, HeadPattern::uniform), 1, kTolerance);
  const HeadSummary almost = summary_of(20, [](Index, Index j) { return j % 2 == 0 ? 1 : 1e-12; }, {}, {});
  EXPECT_NEAR(score_of(almost, HeadPattern::uniform), 0.5, kTolerance);
}

TEST(HeadNames, InductionIsWeightOnWhatFollowedEarlierCopies) {
  const Words tokens = {"a", "b", "c", "a", "b", "c", "a", "b"};
  // Two back is the token after the earlier copy, which is three back.
  const HeadSummary head = summary_of(
      8, [](Index i, Index j) { return j == std::max<Index>(0, i - 2) ? 1 : kSmall; }, tokens);
  EXPECT_EQ(head.name(), "induction");
  EXPECT_GT(head.induction, 0.98);
  EXPECT_GT(score_of(head, HeadPattern::induction), 0.98);
}

TEST(HeadNames, InductionCannotBeSaidWithoutTokensOrCopies) {
  const auto even = [](Index, Index) { return 1.0; };
  EXPECT_TRUE(std::isnan(summary_of(3, even).induction));
  EXPECT_TRUE(std::isnan(summary_of(3, even, {"a", "b", "c"}).induction));
  // The token after the earlier copy of the last token is that token itself, which does not count.
  EXPECT_TRUE(std::isnan(summary_of(2, even, {"a", "a"}).induction));
}

TEST(HeadNames, NoRuleNoName) {
  const HeadSummary head =
      summary_of(40, [](Index i, Index j) { return (i * 7 + j * 13) % 11 == 0 ? 1 : 1e-3; });
  EXPECT_EQ(head.name(), "mixed");
  for (const heed::PatternScore& score : head.patterns) EXPECT_FALSE(score.named);
  EXPECT_TRUE(head.names().empty());
}

TEST(HeadNames, AHeadWithTooFewRowsHasNoName) {
  for (const Index length : {1, 2, 3}) {  // the first row of a causal head has no choice
    const HeadSummary head = summary_of(length, [](Index i, Index j) { return j == i ? 1 : kSmall; });
    EXPECT_EQ(head.name(), "too few rows") << length;
    EXPECT_EQ(head.choices, length - 1);
    EXPECT_TRUE(head.names().empty() && !head.runner_up()) << length;
  }
  EXPECT_EQ(summary_of(4, [](Index i, Index j) { return j == i ? 1 : kSmall; }).name(), "self");
}

TEST(HeadNames, APatternWithTooFewRowsGivesNoName) {
  // Two rows have an earlier copy, and give all their weight to the token after it.
  const Words tokens = {"a", "b", "c", "d", "e", "a", "b"};
  const auto weight = [](Index i, Index j) { return i < 5 ? 1 : j == i - 4 ? 1 : 1e-4; };
  const HeadSummary head = summary_of(7, weight, tokens);
  EXPECT_GT(score_of(head, HeadPattern::induction), 0.99);
  EXPECT_EQ(head.patterns.at(static_cast<std::size_t>(HeadPattern::induction)).rows, 2);
  EXPECT_NE(head.name(), "induction");
}

TEST(HeadNames, AHeadWithoutAChoiceHasNoScores) {
  const HeadSummary head = summary_of(1, [](Index, Index) { return 1.0; });
  EXPECT_EQ(head.rows, 1);
  EXPECT_NEAR(head.self, 1, kTolerance);
  for (const heed::PatternScore& score : head.patterns) EXPECT_TRUE(std::isnan(score.score));
}

TEST(HeadNames, NextTokenAndSelfAreSets) {
  const auto on = [](Index away) {
    return summary_of(20, [away](Index i, Index j) { return j == i + away ? 1 : kSmall; }, {}, {});
  };
  EXPECT_EQ(on(1).name(), "next-token");
  EXPECT_EQ(on(0).name(), "self");
  EXPECT_EQ(on(-1).name(), "previous-token");
}

const Words kRepeated = {"[CLS]", "a", "b", ",", "a", "c", ".", "b", "a", "[SEP]"};

double on_copies(Index i, Index j) {
  return i != j && kRepeated[static_cast<std::size_t>(i)] == kRepeated[static_cast<std::size_t>(j)] ? 1
                                                                                                    : kSmall;
}

TEST(HeadNames, CopiesOnEitherSideAreSameTokenAndEarlierOnesDuplicateToken) {
  const HeadSummary both = summary_of(10, on_copies, kRepeated, {});
  EXPECT_EQ(both.name(), "same-token");
  const HeadSummary earlier =
      summary_of(10, [](Index i, Index j) { return j < i ? on_copies(i, j) : kSmall; }, kRepeated, {});
  EXPECT_EQ(earlier.name(), "duplicate-token");
  EXPECT_EQ(summary_of(10, on_copies, kRepeated).name(), "duplicate-token") << "a causal head sees no others";
}

TEST(HeadNames, SeparatorsAreSpecialTokensAndPunctuationBehindTheFirstKey) {
  const auto on = [](std::initializer_list<Index> keys) {
    return summary_of(
        10,
        [keys](Index, Index j) { return std::find(keys.begin(), keys.end(), j) != keys.end() ? 1 : kSmall; },
        kRepeated, {});
  };
  EXPECT_EQ(on({3, 6, 9}).name(), "separators");
  EXPECT_EQ(on({9}).name(), "separators");
  EXPECT_EQ(on({0}).name(), "first-token sink");
  EXPECT_EQ(on({5}).name(), "vertical");
}

TEST(HeadNames, WhatLiesBesideTheFirstKeyEarnsTheSecondName) {
  const auto with_sink = [](double first) {
    return summary_of(
        20, [first](Index i, Index j) { return j == 0       ? first
                                               : j == i - 1 ? 1 - first
                                                            : 1e-4; }, {}, {});
  };
  const HeadSummary mostly_sink = with_sink(0.8);
  ASSERT_EQ(mostly_sink.names().size(), 2u);
  EXPECT_EQ(mostly_sink.name(), "first-token sink");
  EXPECT_EQ(mostly_sink.names()[1].pattern, HeadPattern::previous_token);
  EXPECT_TRUE(mostly_sink.names()[1].of_rest);
  EXPECT_GT(mostly_sink.names()[1].score, 0.98);
  // With more weight there, it becomes the head's name.
  EXPECT_EQ(with_sink(0.55).name(), "previous-token");
  EXPECT_EQ(with_sink(0.55).runner_up()->pattern, HeadPattern::first_token_sink);
  // The 5 % beside a sink of 95 % are too little for a name.
  EXPECT_EQ(with_sink(0.95).names().size(), 1u);
}

TEST(HeadNames, TheRunnerUpIsNearItsThresholdAndNotImplied) {
  const HeadSummary head =
      summary_of(60, [](Index i, Index j) { return j == i - 1 ? 0.5 : 0.5 / static_cast<double>(i + 1); });
  EXPECT_EQ(head.name(), "previous-token");
  EXPECT_TRUE(head.patterns[static_cast<std::size_t>(HeadPattern::local)].named);
  for (const heed::HeadName& name : head.names()) EXPECT_NE(name.pattern, HeadPattern::local);
  const HeadSummary clear = summary_of(60, [](Index i, Index j) { return j == i - 1 ? 1 : 1e-6; });
  EXPECT_FALSE(clear.runner_up());
}

HeadSummary on_offset(Index length, Index offset, double share, AttentionOptions options = {.causal = true}) {
  return summary_of(
      length,
      [=](Index i, Index j) { return j == i + offset ? share : (1 - share) / static_cast<double>(i + 1); },
      {}, options);
}

TEST(HeadNames, AFixedOffsetIsNamedByItsDistanceAndSide) {
  EXPECT_EQ(on_offset(20, -2, 0.99).name(), "2 back");
  EXPECT_EQ(on_offset(200, -17, 0.6).name(), "17 back");
  EXPECT_EQ(on_offset(20, 3, 0.99, {}).name(), "3 ahead");
  const HeadSummary near = on_offset(20, -1, 0.99);
  EXPECT_EQ(near.name(), "previous-token");
  const heed::PatternScore score = on_offset(20, -2, 0.99).patterns.back();
  EXPECT_EQ(score.pattern, HeadPattern::fixed_offset);
  EXPECT_EQ(score.offset, -2);
  EXPECT_EQ(score.rows, 18);
}

TEST(HeadNames, AFixedOffsetCountsRowsThatLackItsKey) {
  // 19 rows have a choice, and 17 of them see the key three back. Each gives it 0.8 and spreads the rest
  // evenly.
  const HeadSummary head = on_offset(20, -3, 0.8);
  double part = 0, whole = 2;
  for (int i = 3; i < 20; ++i) {
    const double keys = i + 1;
    const double found = 0.8 / (0.8 + 0.2 / keys * (keys - 1));
    part += found - 1 / keys;
    whole += 1 - 1 / keys;
  }
  EXPECT_NEAR(head.patterns.back().score, part / whole, kTolerance);
  // Three rows of a short text agree on an offset by chance.
  const HeadSummary chance =
      summary_of(7, [](Index i, Index j) { return j == i - 4 ? 0.75 : 0.25 / static_cast<double>(i + 1); });
  EXPECT_EQ(chance.name().find("back"), std::string::npos) << chance.name();
}

TEST(HeadNames, AFixedOffsetBesideTheFirstKeyIsOfTheRest) {
  const HeadSummary head = summary_of(40, [](Index i, Index j) {
    return j == 0 ? 0.7 : j == i - 3 ? 0.3 : 1e-4;
  });
  ASSERT_EQ(head.names().size(), 2u);
  EXPECT_EQ(head.name(), "first-token sink");
  EXPECT_EQ(name_of(head.names()[1]), "3 back");
  EXPECT_TRUE(head.names()[1].of_rest);
}

TEST(HeadNames, CopiesComeBeforeTheOffsetThatTheyHaveInARepeatedText) {
  const Words tokens = {"a", "b", "c", "d", "a", "b", "c", "d", "a", "b", "c", "d"};
  const HeadSummary head = summary_of(
      12, [](Index i, Index j) { return j == std::max<Index>(0, i - 3) ? 1 : kSmall; }, tokens);
  EXPECT_EQ(head.name(), "induction");
  for (const heed::HeadName& name : head.names()) EXPECT_NE(name.pattern, HeadPattern::fixed_offset);
}

// The first look finds the offset alone, since copies of some tokens stand at other distances.
TEST(HeadNames, InductionOfTheSecondLookLeavesNoFixedOffsetOfTheFirst) {
  HeadSummary head;
  head.choices = 20;
  for (std::size_t i = 0; i < heed::kHeadPatterns; ++i)
    head.patterns.push_back({.pattern = static_cast<HeadPattern>(i), .rows = 20});
  heed::PatternScore& offset = head.patterns[static_cast<std::size_t>(HeadPattern::fixed_offset)];
  offset.score = 0.45, offset.offset = -9, offset.named = true;
  EXPECT_EQ(head.name(), "9 back");
  heed::PatternScore& induction = head.patterns[static_cast<std::size_t>(HeadPattern::induction)];
  induction.score = 0.25, induction.rest_score = 0.9, induction.named = true;
  EXPECT_EQ(head.name(), "induction");
  EXPECT_EQ(head.names().size(), 1u);
}

TEST(HeadNames, OfSeveralTextsHaveTheOffsetWithTheMostWeight) {
  const std::vector<std::vector<HeadSummary>> texts = {
      {on_offset(10, -2, 0.99)}, {on_offset(60, -5, 0.99)}, {on_offset(50, -5, 0.99)}};
  const HeadSummary merged = heed::merge_summaries(texts).at(0);
  EXPECT_EQ(merged.name(), "5 back");
  EXPECT_EQ(merged.patterns.back().rows, 55 + 45);
  const double all = merged.patterns.back().score;
  EXPECT_LT(all, heed::merge_summaries(std::vector{texts[1], texts[2]}).at(0).patterns.back().score);
}

TEST(HeadNames, AnUnnamedHeadWithADarkFirstColumnIsASink) {
  const auto scattered = [](double first) {
    return summary_of(40, [first](Index i, Index j) {
      const double other = (i * 7 + j * 13) % 11 == 0 ? 1 : 1e-3;
      return j == 0 ? first * std::max(1.0, static_cast<double>(i) / 11) : other;
    });
  };
  EXPECT_LT(score_of(scattered(0.8), HeadPattern::first_token_sink), 0.5);
  EXPECT_EQ(scattered(0.8).name(), "first-token sink");
  EXPECT_EQ(scattered(0.2).name(), "mixed");
}

TEST(HeadNames, OfSeveralTextsAreThoseOfAllTheirRows) {
  const auto previous = [](Index i, Index j) { return j == i - 1 ? 1 : kSmall; };
  const auto even = [](Index, Index) { return 1.0; };
  const std::vector<std::vector<HeadSummary>> texts = {{summary_of(30, previous)}, {summary_of(8, even)}};
  const HeadSummary merged = heed::merge_summaries(texts).at(0);
  EXPECT_EQ(merged.rows, 38);
  EXPECT_EQ(merged.choices, 29 + 7);
  EXPECT_EQ(merged.name(), "previous-token");
  EXPECT_NEAR(merged.entropy, (30 * texts[0][0].entropy + 8 * texts[1][0].entropy) / 38, 1e-12);
  // (W - E) / (N - E): W sums the weights, E sums even weights, and N counts the rows with a choice.
  double found = 0, even_found = 0;
  for (int i = 1; i < 30; ++i) found += 1 / (1 + kSmall * i), even_found += 1.0 / (i + 1);
  for (int i = 1; i < 8; ++i) found += 1.0 / (i + 1), even_found += 1.0 / (i + 1);
  EXPECT_NEAR(score_of(merged, HeadPattern::previous_token), (found - even_found) / (36 - even_found), 1e-5);
  EXPECT_TRUE(std::isnan(merged.induction));
  EXPECT_TRUE(merged.most_received.empty());
}

TEST(HeadNames, OfTextsWithOtherHeadsAreRefused) {
  const auto even = [](Index, Index) { return 1.0; };
  const HeadSummary head = summary_of(8, even);
  EXPECT_THROW((void)heed::merge_summaries({}), heed::Error);
  const std::vector<std::vector<HeadSummary>> texts = {{head}, {head, head}};
  try {
    (void)heed::merge_summaries(texts);
    FAIL();
  } catch (const heed::Error& error) {
    EXPECT_STREQ(error.what(), "text 1 has 2 heads; the 1 head of the first text, in its order, is expected");
  }
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
