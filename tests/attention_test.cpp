// The contract of heed/attention/attention.hpp, one behaviour at a time: formulas, masks, positions, extreme
// numbers.
#include "heed/attention/attention.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "attention_support.hpp"

namespace {

using heed::Align;
using heed::attention;
using heed::AttentionOptions;
using heed::Dims;
using heed::DType;
using heed::Need;
using heed::Tensor;
using heed::TensorView;
using heed::test::largest_difference;
using heed::test::normal_tensor;
using heed::test::same_bits;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr Need kRows = Need::weights | Need::lse | Need::max_score | Need::entropy | Need::distance;

// A call with one query and head dimension 1, so that the scores are the keys times the query.
struct Scores {
  Tensor query, key, value;
  Scores(std::initializer_list<double> queries, std::initializer_list<double> keys)
      : query(Tensor::from<double>(queries, {static_cast<std::int64_t>(queries.size()), 1})),
        key(Tensor::from<double>(keys, {static_cast<std::int64_t>(keys.size()), 1})),
        value(normal_tensor({static_cast<std::int64_t>(keys.size()), 2}, 1)) {}
  heed::AttentionResult attend(AttentionOptions options) const {
    options.need |= kRows;
    return attention(query, key, value, options);
  }
};

// The keys that each row attends to: "110/111".
std::string pattern(const Tensor& weights) {
  std::string text;
  for (std::int64_t i = 0; i < weights.size(0); ++i) {
    if (i > 0) text += '/';
    for (std::int64_t j = 0; j < weights.size(1); ++j) text += weights.at<double>(i, j) > 0 ? '1' : '0';
  }
  return text;
}

// The pattern of a call in which all scores are 0.
std::string pattern_of(std::int64_t queries, std::int64_t keys, AttentionOptions options) {
  options.need = Need::weights;
  return pattern(attention(Tensor({queries, 1}, DType::f64), Tensor({keys, 1}, DType::f64),
                           Tensor({keys, 1}, DType::f64), options)
                     .weights);
}

void expect_empty_row(const heed::AttentionResult& result, std::int64_t i) {
  for (std::int64_t c = 0; c < result.output.size(1); ++c) EXPECT_EQ(result.output.at<double>(i, c), 0);
  for (std::int64_t j = 0; j < result.weights.size(1); ++j) EXPECT_EQ(result.weights.at<double>(i, j), 0);
  EXPECT_EQ(result.lse.at<double>(i), -kInfinity);
  EXPECT_EQ(result.max_score.at<double>(i), -kInfinity);
  EXPECT_EQ(result.entropy.at<double>(i), 0);
  EXPECT_EQ(result.distance.at<double>(i), 0);
}

// Two keys with scores 0 and log 3 have the weights 1/4 and 3/4.
TEST(Attention, FollowsItsFormulas) {
  const Tensor query = Tensor::from<double>({1}, {1, 1});
  const Tensor key = Tensor::from<double>({0, std::log(3.0)}, {2, 1});
  const Tensor value = Tensor::from<double>({4, 8}, {2, 1});
  const auto result = attention(query, key, value, {.need = kRows});
  // The tolerance allows a few roundings of f64.
  EXPECT_NEAR(result.weights.at<double>(0, 0), 0.25, 1e-15);
  EXPECT_NEAR(result.weights.at<double>(0, 1), 0.75, 1e-15);
  EXPECT_NEAR(result.output.at<double>(0, 0), 7, 1e-14);
  EXPECT_NEAR(result.lse.at<double>(0), std::log(4.0), 1e-15);
  EXPECT_NEAR(result.max_score.at<double>(0), std::log(3.0), 1e-15);
  EXPECT_NEAR(result.entropy.at<double>(0), 0.25 * std::log(4.0) + 0.75 * std::log(4.0 / 3), 1e-15);
  EXPECT_NEAR(result.distance.at<double>(0), 0.75, 1e-15);
}

TEST(Attention, ScalesByOneOverTheRootOfTheHeadDimension) {
  const Tensor query = normal_tensor({3, 16}, 1);
  const Tensor key = normal_tensor({4, 16}, 2);
  const AttentionOptions plain{.need = Need::scores};
  const AttentionOptions given{.scale = 0.25, .need = Need::scores};
  EXPECT_TRUE(same_bits(attention(query, key, key, plain).scores, attention(query, key, key, given).scores));
}

TEST(Attention, AppliesSoftcapThenBiasThenAlibi) {
  const Scores call({1}, {-3, 0, 40});
  const Tensor bias = Tensor::from<double>({0.5, -0.5, 0.25}, {3});
  const Tensor slopes = Tensor::from<double>({2}, {1});
  AttentionOptions options{.query_offset = 1, .bias = bias, .softcap = 5, .alibi_slopes = slopes};
  options.need = Need::scores;
  const auto scores = call.attend(options).scores;
  const double expected[] = {5 * std::tanh(-0.6) + 0.5 - 2, -0.5, 5 * std::tanh(8.0) + 0.25 - 2};
  for (std::int64_t j = 0; j < 3; ++j) EXPECT_NEAR(scores.at<double>(0, j), expected[j], 1e-14);
  options.scores_stage = heed::ScoresStage::softcap;
  EXPECT_NEAR(call.attend(options).scores.at<double>(0, 0), 5 * std::tanh(-0.6), 1e-14);
  options.scores_stage = heed::ScoresStage::raw;
  EXPECT_EQ(call.attend(options).scores.at<double>(0, 0), -3);
}

TEST(AttentionMasks, CausalLetsARowSeeItsOwnPositionAndBefore) {
  EXPECT_EQ(pattern_of(3, 3, {.causal = true}), "100/110/111");
  EXPECT_EQ(pattern_of(2, 4, {.causal = true}), "1000/1100");
  EXPECT_EQ(pattern_of(4, 2, {.causal = true}), "10/11/11/11");
}

TEST(AttentionMasks, BottomRightPutsTheLastRowAtTheLastKey) {
  EXPECT_EQ(pattern_of(2, 4, {.causal = true, .align = Align::bottom_right}), "1110/1111");
  // With more queries than keys, the offset is negative and the first rows see nothing.
  EXPECT_EQ(pattern_of(4, 2, {.causal = true, .align = Align::bottom_right}), "00/00/10/11");
}

TEST(AttentionMasks, QueryOffsetSetsThePositionOutright) {
  EXPECT_EQ(pattern_of(2, 4, {.causal = true, .query_offset = 1}), "1100/1110");
  EXPECT_EQ(pattern_of(2, 4, {.causal = true, .query_offset = -1}), "0000/1000");
  EXPECT_EQ(pattern_of(2, 2, {.causal = true, .align = Align::bottom_right, .query_offset = 5}), "11/11");
  const std::int64_t far = std::int64_t{1} << 60;
  EXPECT_EQ(pattern_of(1, 2, {.causal = true, .query_offset = far}), "11");
  EXPECT_EQ(pattern_of(1, 2, {.causal = true, .query_offset = -far}), "00");
}

TEST(AttentionMasks, WindowLimitsEachSideThatIsNotOpen) {
  EXPECT_EQ(pattern_of(4, 4, {.window = {1, 0}}), "1000/1100/0110/0011");
  EXPECT_EQ(pattern_of(4, 4, {.window = {0, 1}}), "1100/0110/0011/0001");
  EXPECT_EQ(pattern_of(3, 3, {.window = {-1, 0}}), "100/110/111");
  EXPECT_EQ(pattern_of(3, 3, {.window = {0, -1}}), "111/011/001");
  EXPECT_EQ(pattern_of(3, 3, {.window = {-1, -1}}), "111/111/111");
  EXPECT_EQ(pattern_of(2, 5, {.align = Align::bottom_right, .window = {1, 0}}), "00110/00011");
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(pattern_of(2, 2, {.window = {most, most}}), "11/11");
}

TEST(AttentionMasks, ComposeByAnd) {
  const Tensor mask = Tensor::from<bool>({true, false, true, true}, {4});
  EXPECT_EQ(pattern_of(4, 4, {.causal = true, .mask = mask}), "1000/1000/1010/1011");
  const Tensor lengths = Tensor::from<std::int32_t>({3}, {1});
  EXPECT_EQ(pattern_of(4, 4, {.causal = true, .window = {1, -1}, .mask = mask, .kv_lengths = lengths}),
            "1000/1000/0010/0010");
}

TEST(AttentionMasks, KeyLengthsMoveTheBottomRightCorner) {
  const Tensor lengths = Tensor::from<std::int64_t>({3}, {1});
  EXPECT_EQ(pattern_of(2, 5, {.causal = true, .align = Align::bottom_right, .kv_lengths = lengths}),
            "11000/11100");
  EXPECT_EQ(pattern_of(2, 5, {.causal = true, .kv_lengths = lengths}), "10000/11000");
  const Tensor one = Tensor::from<std::int64_t>({1}, {1});
  EXPECT_EQ(pattern_of(2, 5, {.causal = true, .align = Align::bottom_right, .kv_lengths = one}),
            "00000/10000");
}

TEST(AttentionMasks, ABiasOfMinusInfinityForbids) {
  const Tensor bias = Tensor::from<double>({0, -kInfinity, 0}, {3});
  EXPECT_EQ(pattern_of(1, 3, {.bias = bias}), "101");
}

TEST(AttentionMasks, AnyByteThatIsNotZeroIsTrue) {
  const std::uint8_t bytes[] = {0, 1, 2, 255};
  const TensorView mask(static_cast<const void*>(bytes), DType::boolean, {4});
  EXPECT_EQ(pattern_of(1, 4, {.mask = mask}), "0111");
}

TEST(AttentionRows, FullyMaskedRowGivesZerosAndMinusInfinityLse) {
  const Tensor mask = Tensor::from<bool>({true, true, false, false}, {2, 2});
  const auto result = Scores({1, 2}, {3, 4}).attend({.mask = mask, .top_k = 2});
  expect_empty_row(result, 1);
  EXPECT_EQ(result.top_k_index.at<std::int64_t>(1, 0), -1);
  EXPECT_EQ(result.top_k_weight.at<double>(1, 1), 0);
  EXPECT_TRUE(std::isfinite(result.lse.at<double>(0)));
}

TEST(AttentionRows, WithoutAnyKeyAreEmptyForEveryReason) {
  const Scores call({1, 2}, {3, 4, 5});
  const Tensor none = Tensor::from<std::int64_t>({0}, {1});
  const Tensor forbid = Tensor::from<double>({-kInfinity}, {1});
  expect_empty_row(call.attend({.causal = true, .query_offset = -9}), 1);
  expect_empty_row(call.attend({.query_offset = 90, .window = {2, 2}}), 0);
  expect_empty_row(call.attend({.kv_lengths = none}), 0);
  expect_empty_row(call.attend({.bias = forbid}), 1);
  expect_empty_row(Scores({1, 2}, {}).attend({}), 1);
}

TEST(AttentionRows, ASinkTakesItsShareInTheDenominatorOnly) {
  const Tensor sink = Tensor::from<double>({std::log(2.0)}, {1});
  const auto result = Scores({0}, {0, 0}).attend({.sinks = sink});
  EXPECT_NEAR(result.weights.at<double>(0, 0), 0.25, 1e-15);
  EXPECT_NEAR(result.lse.at<double>(0), std::log(4.0), 1e-15);
  EXPECT_EQ(result.max_score.at<double>(0), 0);
  EXPECT_NEAR(result.entropy.at<double>(0), 0.5 * std::log(4.0), 1e-15);
}

TEST(AttentionRows, ASinkAndNoKeyGiveZerosAndTheSinkAsLse) {
  const Tensor sink = Tensor::from<double>({1.5}, {1});
  const auto result = Scores({0}, {}).attend({.sinks = sink});
  EXPECT_EQ(result.lse.at<double>(0), 1.5);
  EXPECT_EQ(result.max_score.at<double>(0), -kInfinity);
  EXPECT_EQ(result.output.at<double>(0, 0), 0);
}

TEST(AttentionRows, ASinkOfMinusInfinityIsNone) {
  const Tensor sink = Tensor::from<double>({-kInfinity}, {1});
  const Scores call({0.5, -2}, {1, 2, 3});
  EXPECT_TRUE(same_bits(call.attend({.sinks = sink}).output, call.attend({}).output));
  expect_empty_row(Scores({1}, {}).attend({.sinks = sink}), 0);
}

// A key that is forbidden, in any of the possible ways, must not influence the results.
TEST(AttentionLeaks, AForbiddenKeyNeverLeaks) {
  const Tensor query = normal_tensor({3, 4}, 1);
  Tensor key = normal_tensor({5, 4}, 2);
  Tensor value = normal_tensor({5, 2}, 3);
  const Tensor mask = Tensor::from<bool>({true, true, true, true, false}, {5});
  const Tensor forbid = Tensor::from<double>({0, 0, 0, 0, -kInfinity}, {5});
  const Tensor four = Tensor::from<std::int64_t>({4}, {1});
  const Tensor rows = Tensor::from<std::int64_t>({0, 3, 3}, {3});
  const Tensor keys = Tensor::from<std::int64_t>({0, 4, 5}, {3});
  const std::vector<AttentionOptions> ways{{.causal = true, .query_offset = 1},
                                           {.query_offset = 0, .window = {-1, 1}},
                                           {.mask = mask},
                                           {.bias = forbid, .softcap = 3},
                                           {.kv_lengths = four},
                                           {.query_segments = rows, .key_segments = keys}};
  for (AttentionOptions options : ways) {
    options.need = kRows | Need::received | Need::scores;
    options.top_k = 5;
    options.map = {2, 5};
    key.at<double>(4, 0) = value.at<double>(4, 1) = 1;
    const auto clean = attention(query, key, value, options);
    for (double poison : {kNaN, kInfinity, -kInfinity}) {
      key.at<double>(4, 0) = value.at<double>(4, 1) = poison;
      const auto result = attention(query, key, value, options);
      EXPECT_TRUE(same_bits(result, clean));
    }
  }
}

TEST(AttentionLeaks, ABiasOfNaNOnAForbiddenKeyDoesNotLeak) {
  const Tensor bias = Tensor::from<double>({0, kNaN}, {2});
  const Tensor mask = Tensor::from<bool>({true, false}, {2});
  const auto result = Scores({1}, {2, 3}).attend({.mask = mask, .bias = bias});
  EXPECT_EQ(result.weights.at<double>(0, 0), 1);
  EXPECT_EQ(result.lse.at<double>(0), 2);
}

TEST(AttentionLeaks, AnAllowedNaNStaysInItsRow) {
  Scores call({1, 1}, {0, 1, 2});
  call.key.at<double>(2, 0) = kNaN;
  const auto result = call.attend({.causal = true, .query_offset = 1, .top_k = 2});
  EXPECT_TRUE(std::isfinite(result.output.at<double>(0, 0)));
  EXPECT_TRUE(std::isnan(result.output.at<double>(1, 0)));
  EXPECT_TRUE(std::isnan(result.lse.at<double>(1)));
  EXPECT_TRUE(std::isnan(result.max_score.at<double>(1)));
  EXPECT_TRUE(std::isnan(result.entropy.at<double>(1)));
  EXPECT_EQ(result.top_k_index.at<std::int64_t>(0, 0), 1);
  EXPECT_EQ(result.top_k_index.at<std::int64_t>(1, 0), -1);
  EXPECT_TRUE(std::isnan(result.top_k_weight.at<double>(1, 0)));
}

TEST(AttentionNumbers, HugeLogitsGiveTheLargestKeyAllTheWeight) {
  const auto result = Scores({1e38}, {1e38, 9e37, -1e38}).attend({});
  EXPECT_EQ(result.weights.at<double>(0, 0), 1);
  EXPECT_EQ(result.weights.at<double>(0, 2), 0);
  EXPECT_EQ(result.lse.at<double>(0), 1e38 * 1e38);
  EXPECT_EQ(result.entropy.at<double>(0), 0);
}

TEST(AttentionNumbers, HugeEqualLogitsShareTheWeight) {
  const auto result = Scores({1e38}, {1e38, 1e38}).attend({});
  EXPECT_EQ(result.weights.at<double>(0, 1), 0.5);
  EXPECT_NEAR(result.entropy.at<double>(0), std::log(2.0), 1e-15);
}

TEST(AttentionNumbers, HugeNegativeLogitsAreNotAnEmptyRow) {
  const auto result = Scores({1e38}, {-1e38, -1e38}).attend({});
  EXPECT_EQ(result.weights.at<double>(0, 0), 0.5);
  EXPECT_EQ(result.max_score.at<double>(0), 1e38 * -1e38);
}

TEST(AttentionNumbers, DenormalsCount) {
  const double tiny = std::numeric_limits<double>::denorm_min();
  const auto result = Scores({tiny}, {1, 0}).attend({.scale = 0x1p1000});
  // tiny * 2^1000 = 2^-74 is too small to change the weights but shows in the score.
  EXPECT_EQ(result.max_score.at<double>(0), 0x1p-74);
  EXPECT_EQ(result.weights.at<double>(0, 0), 0.5);
  Scores values({0}, {0});
  values.value.at<double>(0, 0) = tiny;
  EXPECT_EQ(values.attend({}).output.at<double>(0, 0), tiny);
}

TEST(AttentionNumbers, ALargestScoreOfPlusInfinityGivesNaNInItsRowOnly) {
  const Tensor bias = Tensor::from<double>({0, kInfinity, 0, 0}, {2, 2});
  const auto result = Scores({1, 1}, {2, 3}).attend({.bias = bias});
  EXPECT_TRUE(std::isnan(result.output.at<double>(0, 0)));
  EXPECT_TRUE(std::isnan(result.lse.at<double>(0)));
  EXPECT_EQ(result.max_score.at<double>(0), kInfinity);
  EXPECT_TRUE(std::isfinite(result.output.at<double>(1, 0)));
}

TEST(AttentionNumbers, AnAllowedScoreOfMinusInfinityHasNoWeight) {
  Scores call({1}, {2, -kInfinity});
  call.value.at<double>(1, 0) = kNaN;
  const auto result = call.attend({});
  EXPECT_EQ(result.weights.at<double>(0, 0), 1);
  EXPECT_TRUE(std::isfinite(result.output.at<double>(0, 0)));
  expect_empty_row(Scores({1}, {-kInfinity, -kInfinity}).attend({}), 0);
}

}  // namespace
