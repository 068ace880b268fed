// Each result that a call can return besides its output, compared with its definition.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "attention_support.hpp"
#include "heed/attention/attention.hpp"

namespace {

using heed::attention;
using heed::AttentionOptions;
using heed::DType;
using heed::Need;
using heed::Tensor;
using heed::TensorView;
using heed::test::largest_difference;
using heed::test::normal_tensor;
using heed::test::same_bits;

constexpr std::int64_t kRows = 9;
constexpr std::int64_t kKeys = 11;

struct Call {
  Tensor query = normal_tensor({kRows, 6}, 1);
  Tensor key = normal_tensor({kKeys, 6}, 2);
  Tensor value = normal_tensor({kKeys, 3}, 3);
  heed::AttentionResult attend(const AttentionOptions& options) const {
    return attention(query, key, value, options);
  }
};

// Tolerance of sums of about ten terms of at most 1 in f64.
constexpr double kTolerance = 1e-14;

TEST(AttentionInside, WeightsAreExponentialsOfScoresLessLseAndSumToOne) {
  const auto result =
      Call().attend({.causal = true, .query_offset = 2, .need = Need::weights | Need::scores | Need::lse});
  for (std::int64_t i = 0; i < kRows; ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j < kKeys; ++j) {
      const double weight = result.weights.at<double>(i, j);
      sum += weight;
      EXPECT_NEAR(weight, std::exp(result.scores.at<double>(i, j) - result.lse.at<double>(i)), kTolerance);
    }
    EXPECT_NEAR(sum, 1, kTolerance);
  }
}

TEST(AttentionInside, WeightsTimesValuesAreTheOutput) {
  const Call call;
  const auto result = call.attend({.window = {3, 2}, .need = Need::weights});
  for (std::int64_t i = 0; i < kRows; ++i)
    for (std::int64_t c = 0; c < 3; ++c) {
      double sum = 0;
      for (std::int64_t j = 0; j < kKeys; ++j)
        sum += result.weights.at<double>(i, j) * call.value.at<double>(j, c);
      EXPECT_NEAR(result.output.at<double>(i, c), sum, kTolerance);
    }
}

TEST(AttentionInside, ScoresOfForbiddenKeysAreMinusInfinityAfterTheMasksOnly) {
  const Call call;
  AttentionOptions options{.causal = true, .softcap = 2, .need = Need::scores};
  EXPECT_EQ(call.attend(options).scores.at<double>(0, 5), -std::numeric_limits<double>::infinity());
  options.scores_stage = heed::ScoresStage::softcap;
  const auto soft = call.attend(options).scores;
  options.scores_stage = heed::ScoresStage::raw;
  const auto raw = call.attend(options).scores;
  options.causal = false;
  options.softcap = 0;
  EXPECT_TRUE(same_bits(raw, call.attend(options).scores));
  for (std::size_t n = 0; n < raw.values<double>().size(); ++n)
    EXPECT_NEAR(soft.values<double>()[n], 2 * std::tanh(raw.values<double>()[n] / 2), kTolerance);
}

TEST(AttentionInside, PlainScoresIgnoreKeyLengthsAndSegments) {
  const Call call;
  const AttentionOptions plain{.need = Need::scores, .scores_stage = heed::ScoresStage::raw};
  const auto expected = call.attend(plain).scores;
  const Tensor length = Tensor::from<std::int64_t>({3}, {1});
  AttentionOptions options = plain;
  options.kv_lengths = length;
  EXPECT_TRUE(same_bits(call.attend(options).scores, expected));
  const Tensor rows = Tensor::from<std::int64_t>({0, 4, kRows}, {3});
  const Tensor keys = Tensor::from<std::int64_t>({0, 5, kKeys}, {3});
  options = plain;
  options.query_segments = rows;
  options.key_segments = keys;
  EXPECT_TRUE(same_bits(call.attend(options).scores, expected));
  options.scores_stage = heed::ScoresStage::bias;
  const auto biased = call.attend(options).scores;
  EXPECT_EQ(biased.at<double>(0, 5), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(biased.at<double>(8, 4), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(biased.at<double>(8, 5), expected.at<double>(8, 5));
}

TEST(AttentionInside, EntropyOfEqualWeightsIsTheLogOfTheirNumber) {
  const Tensor zeros({4, 2}, DType::f64);
  const auto result = attention(zeros, zeros, zeros, {.causal = true, .need = Need::entropy});
  for (std::int64_t i = 0; i < 4; ++i)
    EXPECT_NEAR(result.entropy.at<double>(i), std::log(static_cast<double>(i + 1)), kTolerance);
}

TEST(AttentionInside, EntropyDistanceReceivedAndMapAreSumsOfTheWeights) {
  const Call call;
  AttentionOptions options{
      .causal = true, .align = heed::Align::bottom_right, .received_last = 4, .map = {3, 4}};
  options.need = Need::weights | Need::entropy | Need::distance | Need::received;
  const Tensor sink = Tensor::from<double>({0.5}, {1});
  options.sinks = sink;
  const auto result = call.attend(options);
  const Tensor& weights = result.weights;
  double received[kKeys] = {}, last[kKeys] = {}, map[3][4] = {};
  for (std::int64_t i = 0; i < kRows; ++i) {
    double entropy = 0, distance = 0;
    for (std::int64_t j = 0; j < kKeys; ++j) {
      const double p = weights.at<double>(i, j);
      if (p > 0) entropy -= p * std::log(p);
      distance += p * std::abs(static_cast<double>(i + (kKeys - kRows) - j));
      received[j] += p;
      if (i >= kRows - 4) last[j] += p;
      map[i * 3 / kRows][j * 4 / kKeys] += p;
    }
    EXPECT_NEAR(result.entropy.at<double>(i), entropy, kTolerance);
    EXPECT_NEAR(result.distance.at<double>(i), distance, 10 * kTolerance);  // distances are up to 10
  }
  for (std::int64_t j = 0; j < kKeys; ++j) {
    EXPECT_NEAR(result.received.at<double>(j), received[j], kTolerance);
    EXPECT_NEAR(result.received_last.at<double>(j), last[j], kTolerance);
  }
  for (std::int64_t r = 0; r < 3; ++r)
    for (std::int64_t c = 0; c < 4; ++c) EXPECT_NEAR(result.map.at<double>(r, c), map[r][c], 10 * kTolerance);
}

TEST(AttentionInside, AMapFinerThanTheMatrixHasEmptyBins) {
  const Tensor zeros({2, 1}, DType::f64);
  const auto map = attention(zeros, zeros, zeros, {.map = {4, 2}}).map;
  EXPECT_EQ(map.at<double>(0, 0), 0.5);
  EXPECT_EQ(map.at<double>(1, 0), 0);
  EXPECT_EQ(map.at<double>(2, 1), 0.5);
}

TEST(AttentionInside, ReceivedLastOfMoreRowsThanThereAreIsReceived) {
  const auto result = Call().attend({.need = Need::received, .received_last = 100});
  EXPECT_TRUE(same_bits(result.received, result.received_last));
}

TEST(AttentionTopK, IsTheLargestWeightsInOrder) {
  const auto result = Call().attend({.causal = true, .query_offset = 1, .need = Need::weights, .top_k = 4});
  for (std::int64_t i = 0; i < kRows; ++i) {
    double above = 2;
    for (std::int64_t k = 0; k < 4; ++k) {
      const std::int64_t j = result.top_k_index.at<std::int64_t>(i, k);
      if (k > i + 1) {
        EXPECT_EQ(j, -1);
        EXPECT_EQ(result.top_k_weight.at<double>(i, k), 0);
        continue;
      }
      EXPECT_EQ(result.top_k_weight.at<double>(i, k), result.weights.at<double>(i, j));
      EXPECT_LE(result.top_k_weight.at<double>(i, k), above);
      above = result.top_k_weight.at<double>(i, k);
    }
    int larger = 0;
    for (std::int64_t j = 0; j < kKeys; ++j) larger += result.weights.at<double>(i, j) > above ? 1 : 0;
    EXPECT_LT(larger, 4);
  }
}

TEST(AttentionTopK, OrdersEqualWeightsByTheLowerIndex) {
  const Tensor query = Tensor::from<float>({1}, {1, 1});
  const Tensor key = Tensor::from<float>({1, 2, 1, 2, 1}, {5, 1});
  const auto index = attention(query, key, key, {.top_k = 6}).top_k_index;
  const std::int64_t expected[] = {1, 3, 0, 2, 4, -1};
  for (std::int64_t k = 0; k < 6; ++k) EXPECT_EQ(index.at<std::int64_t>(0, k), expected[k]);
}

TEST(AttentionTopK, CountsAllowedKeysWhoseWeightUnderflows) {
  const Tensor query = Tensor::from<float>({1}, {1, 1});
  const Tensor key = Tensor::from<float>({0, 5000, -5000}, {3, 1});
  const auto result = attention(query, key, key, {.top_k = 3});
  EXPECT_EQ(result.top_k_index.at<std::int64_t>(0, 0), 1);
  EXPECT_EQ(result.top_k_index.at<std::int64_t>(0, 1), 0);
  EXPECT_EQ(result.top_k_index.at<std::int64_t>(0, 2), 2);
  EXPECT_EQ(result.top_k_weight.at<float>(0, 2), 0);
}

TEST(AttentionTopK, IndexAndWeightCanBeAskedForAlone) {
  const Call call;
  const auto expected = call.attend({.top_k = 3});
  Tensor index({kRows, 3}, DType::i64);
  Tensor weight({kRows, 3}, DType::f64);
  (void)attention_into(call.query, call.key, call.value, {}, {.top_k_index = index});
  (void)attention_into(call.query, call.key, call.value, {}, {.top_k_weight = weight});
  EXPECT_TRUE(same_bits(index, expected.top_k_index));
  EXPECT_TRUE(same_bits(weight, expected.top_k_weight));
}

TEST(AttentionMap, WithoutBinsIsNotWritten) {
  const Call call;
  for (const heed::Dims& shape : {heed::Dims{0, 0}, heed::Dims{0, 3}, heed::Dims{3, 0}}) {
    Tensor map(shape, DType::f64);
    Tensor lse({kRows}, DType::f64);
    (void)attention_into(call.query, call.key, call.value, {}, {.lse = lse, .map = map});
    EXPECT_TRUE(same_bits(lse, call.attend({.need = Need::lse}).lse));
  }
}

TEST(AttentionDropout, ChangesTheOutputAndNothingElse) {
  const Call call;
  AttentionOptions options{.need = Need::weights | Need::lse | Need::entropy | Need::received, .top_k = 2};
  const auto plain = call.attend(options);
  options.dropout = {.probability = 0.5, .seed = 7};
  const auto dropped = call.attend(options);
  EXPECT_GT(largest_difference(plain.output, dropped.output), 0.01);
  EXPECT_TRUE(same_bits(plain.weights, dropped.weights));
  EXPECT_TRUE(same_bits(plain.lse, dropped.lse));
  EXPECT_TRUE(same_bits(plain.entropy, dropped.entropy));
  EXPECT_TRUE(same_bits(plain.received, dropped.received));
  EXPECT_TRUE(same_bits(plain.top_k_weight, dropped.top_k_weight));
}

TEST(AttentionDropout, IsAFunctionOfSeedAndOffset) {
  const Call call;
  const auto output = [&](std::uint64_t seed, std::uint64_t offset) {
    return call.attend({.dropout = {.probability = 0.5, .seed = seed, .offset = offset}}).output;
  };
  EXPECT_TRUE(same_bits(output(1, 2), output(1, 2)));
  EXPECT_FALSE(same_bits(output(1, 2), output(2, 2)));
  EXPECT_FALSE(same_bits(output(1, 2), output(1, 3)));
}

// The value rows form the identity, so the output shows each weight that dropout sets to 0.
TEST(AttentionDropout, KeepsTheMeanOfEachWeight) {
  const Tensor query({400, 1}, DType::f64);
  const Tensor key({50, 1}, DType::f64);
  Tensor identity({50, 50}, DType::f64);
  for (std::int64_t j = 0; j < 50; ++j) identity.at<double>(j, j) = 1;
  const auto output = attention(query, key, identity, {.dropout = {.probability = 0.25, .seed = 3}}).output;
  int kept = 0;
  for (double x : output.values<double>()) {
    if (x != 0) {
      ++kept;
      EXPECT_NEAR(x, 1.0 / 50 / 0.75, 1e-16);
    }
  }
  // 20,000 draws have a standard deviation of 61; five of them are allowed.
  EXPECT_NEAR(kept, 15000, 306);
}

TEST(AttentionDropout, NeverReadsTheValueOfADroppedKey) {
  const Tensor query({1, 1}, DType::f64);
  const Tensor key({64, 1}, DType::f64);
  Tensor value({64, 1}, DType::f64);
  const AttentionOptions options{.dropout = {.probability = 0.5, .seed = 9}};
  int poisoned = 0;
  for (std::int64_t j = 0; j < 64; ++j) {
    value.at<double>(j, 0) = std::numeric_limits<double>::quiet_NaN();
    if (std::isnan(attention(query, key, value, options).output.at<double>(0, 0)))
      value.at<double>(j, 0) = 1;  // kept, so its value must not be poison
    else
      ++poisoned;
  }
  EXPECT_GT(poisoned, 10);
  EXPECT_LT(poisoned, 54);
}

}  // namespace
