// Scores that exceed the range of f32: finite biases below it, sinks without keys, positions far beyond the
// keys. The expected values are derived by hand or by the naive computation. The fused kernel is never
// compared with the reference, to which it falls back.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "attention_support.hpp"
#include "naive_attention.hpp"
#include "naive_backward.hpp"

namespace {

using heed::Align;
using heed::AttentionOptions;
using heed::AttentionResult;
using heed::DType;
using heed::Kernel;
using heed::Need;
using heed::Tensor;
using heed::test::normal_tensor;
using heed::test::why_not_fused;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr Kernel kKernels[] = {Kernel::fused, Kernel::reference};

Tensor full(const heed::Dims& shape, double value, DType dtype) {
  Tensor tensor(shape, DType::f64);
  for (double& x : tensor.values<double>()) x = value;
  return Tensor::copy_of(tensor, dtype);
}

// numpy.finfo(float64).min is the usual additive mask. It is finite. A row of only such biases attends to all
// keys alike, because adding a constant to a row's scores changes no weight. (Here the constant absorbs the
// scores.)
TEST(ExtremeScores, AFiniteBiasBelowWhatF32HoldsForbidsNothing) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  const Tensor q = normal_tensor({3, 8}, 1, DType::f32), k = normal_tensor({5, 8}, 2, DType::f32);
  Tensor v({5, 2}, DType::f32);
  for (int j = 0; j < 5; ++j) v.values<float>()[static_cast<std::size_t>(2 * j)] = static_cast<float>(j);
  Tensor bias({3, 5}, DType::f64);
  const double lowest = std::numeric_limits<double>::lowest();
  for (int j = 0; j < 5; ++j) bias.values<double>()[static_cast<std::size_t>(j)] = lowest;  // row 0: all keys
  bias.values<double>()[5] = lowest;                                                        // row 1: key 0
  for (const Kernel kernel : kKernels) {
    const AttentionResult result =
        heed::attention(q, k, v, {.bias = bias, .need = Need::weights, .kernel = kernel});
    for (int j = 0; j < 5; ++j)
      EXPECT_NEAR(result.weights.values<float>()[static_cast<std::size_t>(j)], 0.2, 1e-6);
    EXPECT_NEAR(result.output.values<float>()[0], 2.0, 1e-5);
    EXPECT_EQ(result.weights.values<float>()[5], 0);
    EXPECT_GT(result.weights.values<float>()[6], 0);
  }
}

TEST(ExtremeScores, GradientsUnderAFiniteBiasBelowWhatF32HoldsAreThoseOfTheMean) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  const Tensor q = normal_tensor({1, 8}, 1, DType::f32), k = normal_tensor({4, 8}, 2, DType::f32);
  const Tensor v = normal_tensor({4, 2}, 3, DType::f32), g = normal_tensor({1, 2}, 4, DType::f32);
  const Tensor bias = full({1, 4}, std::numeric_limits<double>::lowest(), DType::f64);
  for (const Kernel kernel : kKernels) {
    const AttentionResult forward =
        heed::attention(q, k, v, {.bias = bias, .need = Need::lse, .kernel = kernel});
    const auto gradients =
        heed::attention_backward({q, k, v, forward.output, forward.lse, g}, {.bias = bias, .kernel = kernel});
    for (std::size_t j = 0; j < 4; ++j)  // dV_j = p_j g with p_j = 1/4
      for (std::size_t c = 0; c < 2; ++c)
        EXPECT_NEAR(gradients.value.values<float>()[2 * j + c], g.values<float>()[c] / 4, 1e-6);
  }
}

// Masks consist of finfo.min of the query's dtype. Rows of padding have it for every key that they may see.
// Such a row is the mean of these keys, which the kernel computes correctly itself. Other rows have it beside
// biases of 0.
struct PaddedCall {
  PaddedCall(std::int64_t rows, double lowest, DType dtype)
      : query(normal_tensor({2, rows, 16}, 1, DType::f32)),
        key(normal_tensor({2, rows, 16}, 2, DType::f32)),
        value(normal_tensor({2, rows, 16}, 3, DType::f32)),
        bias({1, rows, rows}, dtype) {
    Tensor numbers({1, rows, rows}, DType::f64);
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < rows; ++j)
        numbers.at<double>(0, i, j) = j < rows / 2 || j > i ? lowest : 0;
    bias = Tensor::copy_of(numbers, dtype);
  }
  Tensor query, key, value, bias;
};

TEST(ExtremeScores, RowsOfPaddingAreTheMeanOfTheirKeys) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  constexpr Need kNeeds = Need::lse | Need::max_score | Need::entropy | Need::distance | Need::received |
                          Need::weights | Need::masked_mass;
  for (const auto& [dtype, lowest] :
       {std::pair{DType::f32, -0x1.fffffep127}, std::pair{DType::bf16, -0x1.fep127},
        std::pair{DType::f64, std::numeric_limits<double>::lowest()}})
    for (const std::int64_t rows : {4, 40, 300})
      for (const bool causal : {false, true}) {
        SCOPED_TRACE(testing::Message() << heed::name_of(dtype) << ", " << rows << " rows, " << causal);
        const PaddedCall call(rows, lowest, dtype);
        const AttentionOptions options{.causal = causal,
                                       .bias = call.bias,
                                       .need = kNeeds,
                                       .top_k = 2,
                                       .map = {3, 2},
                                       .kernel = Kernel::fused};
        const AttentionResult got = heed::attention(call.query, call.key, call.value, options);
        EXPECT_EQ(got.recomputed_rows, 0);
        const heed::test::Naive naive =
            heed::test::naive_attention(call.query, call.key, call.value, options);
        for (std::int64_t h = 0; h < 2; ++h)
          for (std::int64_t i = 0; i < rows; ++i) {
            const auto row = static_cast<std::size_t>(h * rows + i);
            for (std::int64_t j = 0; j < rows; ++j)
              ASSERT_NEAR(
                  got.weights
                      .values<float>()[row * static_cast<std::size_t>(rows) + static_cast<std::size_t>(j)],
                  static_cast<double>(naive.weights(0, h, i, j)), 2e-6);
            for (std::int64_t c = 0; c < 16; ++c)
              ASSERT_NEAR(got.output.values<float>()[row * 16 + static_cast<std::size_t>(c)],
                          static_cast<double>(naive.output(0, h, i, c)), 4e-6);
            const auto lse = static_cast<float>(naive.lse(0, h, i));
            const auto max = static_cast<float>(naive.max_score(0, h, i));
            if (i < rows / 2) {
              ASSERT_EQ(got.lse.values<float>()[row], lse);
              ASSERT_EQ(got.max_score.values<float>()[row], max);
              ASSERT_EQ(got.top_k_index.values<std::int64_t>()[2 * row], 0);
              ASSERT_EQ(got.masked_mass.values<float>()[row], 0);
            }
            ASSERT_NEAR(got.entropy.values<float>()[row], static_cast<double>(naive.entropy(0, h, i)), 2e-5);
            ASSERT_NEAR(got.distance.values<float>()[row], static_cast<double>(naive.distance(0, h, i)),
                        1e-3);
          }
        for (std::int64_t h = 0; h < 2; ++h)
          for (std::int64_t j = 0; j < rows; ++j)
            ASSERT_NEAR(got.received.values<float>()[static_cast<std::size_t>(h * rows + j)],
                        static_cast<double>(naive.received(0, h, j)), 1e-4);
      }
}

TEST(ExtremeScores, GradientsOfRowsOfPaddingAreThoseOfTheMean) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  for (const std::int64_t rows : {4, 40, 300}) {
    SCOPED_TRACE(rows);
    const PaddedCall call(rows, -0x1.fffffep127, DType::f32);
    const Tensor grad = normal_tensor({2, rows, 16}, 4, DType::f32);
    const AttentionOptions options{
        .causal = true, .bias = call.bias, .need = Need::lse, .kernel = Kernel::fused};
    const AttentionResult forward = heed::attention(call.query, call.key, call.value, options);
    const heed::AttentionBackwardInputs inputs{call.query,     call.key,    call.value,
                                               forward.output, forward.lse, grad};
    const auto got = heed::attention_backward(inputs, options, {.bias = true});
    EXPECT_EQ(got.recomputed_rows, 0);
    const auto naive = heed::test::naive_attention(call.query, call.key, call.value, options);
    const auto expected = heed::test::naive_backward(inputs, options, naive);
    const auto compare = [](const Tensor& x, const heed::test::Cube& want,
                            const heed::test::Cube& magnitude) {
      for (std::size_t n = 0; n < want.values.size(); ++n)
        ASSERT_NEAR(x.values<float>()[n], static_cast<double>(want.values[n]),
                    1e-6 + 5e-5 * static_cast<double>(magnitude.values[n]))
            << n;
    };
    compare(got.query, expected.query, expected.query_magnitude);
    compare(got.key, expected.key, expected.key_magnitude);
    compare(got.value, expected.value, expected.value_magnitude);
  }
}

// A row is a mean only if all its keys have one bias and its scores are much smaller.
TEST(ExtremeScores, RowsOfSeveralLowBiasesAreNoMean) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  struct Case {
    const char* name;
    float bias, other;  // other: the bias of every third key
    float scale;        // of the queries
    float sink;
  };
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  for (const Case& one : {Case{"two biases", kLowest, kLowest / 2, 1, -kInfinity},
                          Case{"one below the other by little", kLowest, -0x1.fffffcp127F, 1, -kInfinity},
                          Case{"a bias that scores are seen beside", -3e7F, -3e7F, 1, -kInfinity},
                          Case{"scores as large", -1e35F, -1e35F, 1e17F, -kInfinity},
                          Case{"a sink above", kLowest, kLowest, 1, -3.2e38F},
                          Case{"a sink below", -3.2e38F, -3.2e38F, 1, kLowest}})
    for (const std::int64_t rows : {1, 40}) {
      SCOPED_TRACE(testing::Message() << one.name << ", " << rows << " rows");
      Tensor q = normal_tensor({rows, 8}, 1, DType::f32), k = normal_tensor({60, 8}, 2, DType::f32);
      const Tensor v = normal_tensor({60, 8}, 3, DType::f32);
      for (float& x : q.values<float>()) x *= one.scale;
      for (float& x : k.values<float>()) x *= one.scale;
      Tensor bias({rows, 60}, DType::f32), sinks({1}, DType::f32);
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < 60; ++j) bias.at<float>(i, j) = j % 3 == 0 ? one.other : one.bias;
      sinks.at<float>(0) = one.sink;
      AttentionOptions options{.bias = bias, .need = Need::weights | Need::lse, .kernel = Kernel::fused};
      if (one.sink > -kInfinity) options.sinks = sinks;
      const AttentionResult got = heed::attention(q, k, v, options);
      const heed::test::Naive naive = heed::test::naive_attention(q, k, v, options);
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < 60; ++j)
          ASSERT_NEAR(got.weights.values<float>()[static_cast<std::size_t>(i * 60 + j)],
                      static_cast<double>(naive.weights(0, 0, i, j)), 2e-6);
        const double lse = static_cast<double>(naive.lse(0, 0, i));
        ASSERT_NEAR(got.lse.values<float>()[static_cast<std::size_t>(i)], lse, 1e-7 * std::abs(lse));
      }
    }
}

// lse = log(exp(sink)) = sink, so the derivative of lse with respect to the sink is 1.
TEST(ExtremeScores, TheLseOfARowThatSeesNoKeyIsItsSink) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const double sink : {-752.5, -88.0, -3e38, 0.0, 90.0, 752.5, 3e38}) {
      const Tensor q = normal_tensor({2, 5, 8}, 1, dtype), k = normal_tensor({2, 1, 8}, 2, dtype);
      const Tensor sinks = full({2}, sink, DType::f64);
      for (const Kernel kernel : kKernels) {
        const AttentionOptions options{.causal = true,
                                       .align = Align::bottom_right,
                                       .sinks = sinks,
                                       .need = Need::lse | Need::entropy | Need::max_score,
                                       .kernel = kernel};
        const AttentionResult result = heed::attention(q, k, k, options);
        const Tensor ones = full({2, 5}, 1, DType::f32);
        const Tensor none = full({2, 5, 8}, 0, dtype);
        const auto gradients = heed::attention_backward({.query = q,
                                                         .key = k,
                                                         .value = k,
                                                         .output = result.output,
                                                         .lse = result.lse,
                                                         .grad_output = none,
                                                         .grad_lse = ones},
                                                        options, {.sinks = true});
        for (std::size_t h = 0; h < 2; ++h) {
          for (std::size_t i = 0; i < 4; ++i) {  // only the last row sees the key
            EXPECT_EQ(result.lse.values<float>()[5 * h + i], static_cast<float>(sink));
            EXPECT_EQ(result.entropy.values<float>()[5 * h + i], 0);
            EXPECT_EQ(result.max_score.values<float>()[5 * h + i], -kInfinity);
          }
          heed::test::Real score = 0;  // the score of the last row and the only key
          for (int d = 0; d < 8; ++d)
            score += heed::test::naive_element(q, {0, static_cast<std::int64_t>(h), 4, d}) *
                     heed::test::naive_element(k, {0, static_cast<std::int64_t>(h), 0, d}) /
                     std::sqrt(heed::test::Real{8});
          const double of_last_row = 1 / (1 + std::exp(static_cast<double>(score) - sink));
          EXPECT_NEAR(gradients.sinks.values<double>()[h], 4 + of_last_row, 1e-4) << sink;
        }
      }
    }
}

// For a row beyond its keys, every distance is a constant plus the distance from the last key. The constant
// cancels in the softmax. So the weights follow from the bias -slope (last - j), and lse is smaller by slope
// times the constant.
TEST(ExtremeScores, AlibiKeepsItsWeightsHoweverFarTheKeysAre) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  constexpr std::int64_t kQueries = 3, kKeys = 300;
  const Tensor q = normal_tensor({kQueries, 16}, 1, DType::f32),
               k = normal_tensor({kKeys, 16}, 2, DType::f32);
  const Tensor v = normal_tensor({kKeys, 16}, 3, DType::f32),
               g = normal_tensor({kQueries, 16}, 4, DType::f32);
  for (const double slope : {0.5, 0.001, -0.25})
    for (const std::int64_t offset : {std::int64_t{500000}, std::int64_t{1} << 40, std::int64_t{1} << 60,
                                      -std::int64_t{500000}, -(std::int64_t{1} << 60)}) {
      const Tensor slopes = full({1, 1}, slope, DType::f64);
      Tensor bias({kQueries, kKeys}, DType::f64);
      for (std::int64_t i = 0; i < kQueries; ++i)
        for (std::int64_t j = 0; j < kKeys; ++j)
          bias.values<double>()[static_cast<std::size_t>(i * kKeys + j)] =
              -slope * static_cast<double>(offset > 0 ? kKeys - 1 - j : j);
      const heed::test::Naive near = heed::test::naive_attention(q, k, v, {.bias = bias});
      for (const Kernel kernel : kKernels) {
        const AttentionOptions options{
            .query_offset = offset,
            .alibi_slopes = slopes,
            .need = Need::weights | Need::lse | Need::max_score | Need::entropy | Need::scores,
            .kernel = kernel};
        const AttentionResult far = heed::attention(q, k, v, options);
        const auto gradients = heed::attention_backward({q, k, v, far.output, far.lse, g}, options);
        const heed::AttentionOptions as_bias{.bias = bias};
        const Tensor near_output = Tensor::copy_of(far.output, DType::f32);
        const auto expected = heed::test::naive_backward({q, k, v, near_output, far.lse, g}, as_bias, near);
        for (std::int64_t i = 0; i < kQueries; ++i) {
          const auto row = static_cast<std::size_t>(i);
          for (std::int64_t j = 0; j < kKeys; ++j)  // about 20 roundings of scores up to 150 (slope 0.5)
            ASSERT_NEAR(far.weights.values<float>()[static_cast<std::size_t>(i * kKeys + j)],
                        static_cast<double>(near.weights(0, 0, i, j)), 5e-6)
                << "slope " << slope << " offset " << offset << " row " << i << " key " << j;
          const double nearest =
              offset > 0 ? static_cast<double>(offset + i - (kKeys - 1)) : -static_cast<double>(offset + i);
          const double lse = static_cast<double>(near.lse(0, 0, i)) - slope * nearest;
          EXPECT_NEAR(far.lse.values<float>()[row] / lse, 1, 1e-6);
          EXPECT_NEAR(far.entropy.values<float>()[row], static_cast<double>(near.entropy(0, 0, i)), 1e-4);
          const double largest = static_cast<double>(near.max_score(0, 0, i)) - slope * nearest;
          EXPECT_NEAR(far.max_score.values<float>()[row] / largest, 1, 1e-6);
          const double score = static_cast<double>(near.final_scores(0, 0, i, 7)) - slope * nearest;
          EXPECT_NEAR(far.scores.values<float>()[row * kKeys + 7] / score, 1, 1e-6);
          for (std::int64_t d = 0; d < 16; ++d)
            EXPECT_NEAR(gradients.query.values<float>()[static_cast<std::size_t>(i * 16 + d)],
                        static_cast<double>(expected.query(0, 0, i, d)), 1e-4);
        }
      }
    }
}

// A sink is one more logit, and is compared with the true scores.
TEST(ExtremeScores, ASinkBesideFarKeysTakesWhatAlibiLeavesToIt) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  const Tensor q = full({1, 8}, 0, DType::f32), k = full({200, 8}, 0, DType::f32);
  const Tensor slopes = full({1, 1}, 0.5, DType::f64);
  // Scores are -0.5 (p - j). The sink equals the score of the last key, at p = 1000199, so both weigh the
  // same.
  const double nearest = -0.5 * 1000000;
  double all = 0;
  for (int j = 0; j < 200; ++j) all += std::exp(-0.5 * j);
  const Tensor sinks = full({1}, nearest, DType::f64);
  for (const Kernel kernel : kKernels) {
    const AttentionResult result = heed::attention(q, k, k,
                                                   {.query_offset = 1000199,
                                                    .alibi_slopes = slopes,
                                                    .sinks = sinks,
                                                    .need = Need::weights,
                                                    .kernel = kernel});
    EXPECT_NEAR(result.weights.values<float>()[199], 1 / (1 + all), 1e-6);
  }
}

// Scores are returned correctly even where their weights are 0.
TEST(ExtremeScores, ScoresFarBelowTheLargestAreReturnedAsTheyAre) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  const Tensor q = full({1, 8}, 0, DType::f32), k = full({4, 8}, 0, DType::f32);
  Tensor bias({1, 4}, DType::f64);
  const double values[] = {0, -1e6, -3e7, -1e30};
  for (std::size_t j = 0; j < 4; ++j) bias.values<double>()[j] = values[j];
  for (const Kernel kernel : kKernels) {
    const AttentionResult result =
        heed::attention(q, k, k, {.bias = bias, .need = Need::scores, .kernel = kernel});
    for (std::size_t j = 1; j < 4; ++j) EXPECT_NEAR(result.scores.values<float>()[j] / values[j], 1, 1e-6);
  }
}

}  // namespace
