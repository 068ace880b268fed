// Rows that f32 cannot hold: only these are recomputed, the result counts them, and every other row keeps its
// bits. Expected values come from the naive computation or from the definition of NaN.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "attention_support.hpp"
#include "heed/parallel.hpp"
#include "naive_attention.hpp"
#include "naive_backward.hpp"

namespace {

using heed::AttentionOptions;
using heed::AttentionResult;
using heed::DType;
using heed::Kernel;
using heed::Need;
using heed::Tensor;
using heed::test::normal_tensor;
using heed::test::why_not_fused;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr Need kAllButScores =
    Need::lse | Need::max_score | Need::entropy | Need::distance | Need::received | Need::weights;
constexpr Need kEverything = kAllButScores | Need::scores;

struct Inputs {
  Tensor query, key, value;
};
Inputs inputs(std::int64_t heads, std::int64_t rows, std::int64_t keys, std::int64_t dim) {
  return {normal_tensor({heads, rows, dim}, 1, DType::f32), normal_tensor({heads, keys, dim}, 2, DType::f32),
          normal_tensor({heads, keys, dim}, 3, DType::f32)};
}
float& at(Tensor& tensor, std::int64_t head, std::int64_t row, std::int64_t column) {
  return tensor
      .values<float>()[static_cast<std::size_t>((head * tensor.size(1) + row) * tensor.size(2) + column)];
}
AttentionResult run(const Inputs& in, AttentionOptions options) {
  options.kernel = Kernel::fused;
  return heed::attention(in.query, in.key, in.value, options);
}

// All row results of row i of head 0.
std::vector<float> row_of(const AttentionResult& result, std::int64_t i) {
  std::vector<float> row;
  for (const Tensor* tensor : {&result.output, &result.lse, &result.entropy, &result.max_score,
                               &result.distance, &result.weights, &result.top_k_weight}) {
    const std::int64_t width = tensor->rank() == 3 ? tensor->size(2) : 1;
    const auto values = tensor->values<float>();
    for (std::int64_t c = 0; c < width && tensor->count() > 1; ++c)
      row.push_back(values[static_cast<std::size_t>(i * width + c)]);
  }
  return row;
}

TEST(RecomputedRows, ANaNInAQueryConcernsItsRowAlone) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  for (const std::int64_t rows : {3, 40, 500}) {
    Inputs in = inputs(2, rows, 300, 16);
    const AttentionOptions options{.need = kEverything, .top_k = 3};
    const AttentionResult clean = run(in, options);
    EXPECT_EQ(clean.recomputed_rows, 0);
    at(in.query, 0, 1, 5) = kNaN;
    const AttentionResult result = run(in, options);
    EXPECT_EQ(result.recomputed_rows, 1);
    for (std::int64_t i = 0; i < 2 * rows; ++i) {
      const std::vector<float> got = row_of(result, i), expected = row_of(clean, i);
      for (std::size_t n = 0; n < got.size(); ++n)
        if (i == 1)
          ASSERT_TRUE(std::isnan(got[n])) << n;
        else
          ASSERT_EQ(got[n], expected[n]) << "row " << i;
    }
    EXPECT_EQ(result.top_k_index.values<std::int64_t>()[3], -1);
    EXPECT_TRUE(std::isnan(result.received.values<float>()[7]));
    EXPECT_EQ(result.received.values<float>()[300], clean.received.values<float>()[300]);
  }
}

TEST(RecomputedRows, ANaNInAKeyConcernsTheRowsThatSeeIt) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  for (const std::int64_t rows : {3, 40, 500}) {
    Inputs in = inputs(1, rows, rows, 16);
    const std::int64_t bad = rows / 3;
    const AttentionOptions options{.causal = true, .need = kAllButScores, .top_k = 2, .map = {4, 4}};
    const AttentionResult clean = run(in, options);
    at(in.key, 0, bad, 0) = kNaN;
    const AttentionResult result = run(in, options);
    EXPECT_EQ(result.recomputed_rows, rows - bad);
    for (std::int64_t i = 0; i < rows; ++i) {
      EXPECT_EQ(std::isnan(result.lse.values<float>()[static_cast<std::size_t>(i)]), i >= bad);
      if (i < bad) {
        ASSERT_EQ(row_of(result, i), row_of(clean, i)) << i;
      }
      // In a NaN row, too, a forbidden key weighs 0.
      if (i + 1 < rows) {
        EXPECT_EQ(result.weights.values<float>()[static_cast<std::size_t>(i * rows + i + 1)], 0);
      }
    }
    EXPECT_TRUE(std::isnan(result.received.values<float>()[0]));
  }
}

TEST(RecomputedRows, ANaNInAValueIsInItsColumnOfTheRowsThatSeeIt) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  for (const std::int64_t rows : {3, 40, 500}) {
    Inputs in = inputs(1, rows, rows, 16);
    const std::int64_t bad = rows / 3;
    const AttentionOptions options{.causal = true, .need = Need::lse | Need::weights};
    const AttentionResult clean = run(in, options);
    at(in.value, 0, bad, 6) = kNaN;
    const AttentionResult result = run(in, options);
    // The kernel computes rows that see it correctly. Some other rows share a tile with them.
    EXPECT_LT(result.recomputed_rows, 200);
    EXPECT_TRUE(heed::test::same_bits(result.weights, clean.weights));
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t c = 0; c < 16; ++c) {
        const auto n = static_cast<std::size_t>(i * 16 + c);
        if (i >= bad && c == 6)
          ASSERT_TRUE(std::isnan(result.output.values<float>()[n]));
        else
          ASSERT_NEAR(result.output.values<float>()[n], clean.output.values<float>()[n], 2e-6) << i;
      }
  }
}

// Infinite values, and values whose sum exceeds f32 although their mean does not.
TEST(RecomputedRows, LargeValuesGiveTheirWeightedMean) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  Inputs in = inputs(1, 30, 40, 8);
  for (std::int64_t j = 0; j < 40; ++j) at(in.value, 0, j, 2) = 3e38F;
  at(in.value, 0, 20, 4) = kInfinity;
  const AttentionResult result = run(in, {});
  for (std::int64_t i = 0; i < 30; ++i) {
    EXPECT_NEAR(result.output.values<float>()[static_cast<std::size_t>(i * 8 + 2)] / 3e38F, 1, 1e-6);
    EXPECT_EQ(result.output.values<float>()[static_cast<std::size_t>(i * 8 + 4)], kInfinity);
  }
}

// The kernel computes rows that see the infinity correctly. Some other rows share a tile with them.
TEST(RecomputedRows, AnInfinityInAValueIsInItsColumnOfTheRowsThatSeeIt) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t rows : {3, 40, 500}) {
      SCOPED_TRACE(testing::Message() << heed::name_of(dtype) << ", " << rows << " rows");
      Inputs in = inputs(1, rows, rows, 16);
      const std::int64_t bad = rows / 3;
      for (Tensor* tensor : {&in.query, &in.key, &in.value})
        *tensor = Tensor::copy_of(Tensor::copy_of(*tensor, dtype), DType::f32);
      const Inputs clean = in;
      at(in.value, 0, bad, 6) = -kInfinity;
      for (Tensor* tensor : {&in.query, &in.key, &in.value}) *tensor = Tensor::copy_of(*tensor, dtype);
      const AttentionResult result = run(in, {.causal = true, .need = Need::weights});
      // An infinity cannot be a sum of three bf16, so amx_f32 leaves out all rows of these keys.
      if (!result.isa.starts_with("amx_f32")) {
        EXPECT_LT(result.recomputed_rows, 200);
      }
      const heed::test::Naive naive =
          heed::test::naive_attention(clean.query, clean.key, clean.value, {.causal = true});
      const Tensor output = Tensor::copy_of(result.output, DType::f32);
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t c = 0; c < 16; ++c) {
          const float got = output.values<float>()[static_cast<std::size_t>(i * 16 + c)];
          if (i >= bad && c == 6)
            ASSERT_EQ(got, -kInfinity) << i;
          else
            ASSERT_NEAR(got, static_cast<double>(naive.output(0, 0, i, c)), dtype == DType::f32 ? 2e-6 : 2e-2)
                << i;
        }
    }
}

// inf - inf is NaN, whatever the weights are. inf times a weight too small for f32 is infinite.
TEST(RecomputedRows, InfinitiesOfBothSignsMeet) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  for (const std::int64_t rows : {2, 40}) {
    Inputs in = inputs(1, rows, 250, 16);
    at(in.value, 0, 20, 1) = kInfinity;
    at(in.value, 0, 130, 1) = -kInfinity;
    at(in.value, 0, 20, 3) = kInfinity;
    Tensor bias({rows, 250}, DType::f32);
    for (std::int64_t i = 0; i < rows; ++i) bias.at<float>(i, 20) = i % 2 == 0 ? -200.0F : 0.0F;
    const AttentionResult result = run(in, {.bias = bias});
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t c = 0; c < 16; ++c) {
        const float got = result.output.values<float>()[static_cast<std::size_t>(i * 16 + c)];
        if (c == 1)
          ASSERT_TRUE(std::isnan(got)) << i;
        else if (c == 3)
          ASSERT_EQ(got, kInfinity) << i;
        else
          ASSERT_TRUE(std::isfinite(got)) << i << " " << c;
      }
  }
}

// Scores near 1e30: the largest key of a row has all the weight.
TEST(RecomputedRows, RowsOfHugeScoresAreOneHot) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  for (const std::int64_t rows : {2, 60}) {
    Inputs in = inputs(1, rows, 250, 8);
    for (std::int64_t d = 0; d < 8; ++d) at(in.query, 0, 1, d) *= 1e30F;
    const AttentionOptions options{.need = kEverything, .top_k = 1, .map = {2, 3}};
    const AttentionResult result = run(in, options);
    EXPECT_EQ(result.recomputed_rows, 1);
    const heed::test::Naive naive = heed::test::naive_attention(in.query, in.key, in.value, options);
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < 250; ++j) {
        ASSERT_NEAR(result.weights.values<float>()[static_cast<std::size_t>(i * 250 + j)],
                    static_cast<double>(naive.weights(0, 0, i, j)), 2e-6);
        const double score = static_cast<double>(naive.scores(0, 0, i, j));
        ASSERT_NEAR(result.scores.values<float>()[static_cast<std::size_t>(i * 250 + j)], score,
                    2e-6 * (1 + std::abs(score)));
      }
    for (std::int64_t j = 0; j < 250; ++j)
      EXPECT_NEAR(result.received.values<float>()[static_cast<std::size_t>(j)],
                  static_cast<double>(naive.received(0, 0, j)), 1e-4);
    for (std::int64_t bin = 0; bin < 6; ++bin)
      EXPECT_NEAR(result.map.values<float>()[static_cast<std::size_t>(bin)],
                  static_cast<double>(naive.map(0, 0, bin / 3, bin % 3)), 1e-4);
  }
}

// Rows whose scores lie far apart have one weight, and rows whose scores are equal have as many as they see
// keys. Both kinds stand in one block. A value that is not finite has weights of 0 in the first kind: 0 * inf
// is NaN.
TEST(RecomputedRows, OfFewAndOfManyWeightsAreWeightedMeans) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  constexpr std::int64_t kRows = 90, kKeys = 203, kDim = 16;
  for (const bool with_infinity : {false, true})
    for (const double dropped : {0.0, 0.3})
      for (const bool causal : {false, true}) {
        SCOPED_TRACE(testing::Message() << with_infinity << ' ' << dropped << ' ' << causal);
        Inputs in = inputs(1, kRows, kKeys, kDim);
        for (std::int64_t j = 0; j < kKeys; ++j) at(in.key, 0, j, 0) = 1;
        for (std::int64_t i = 0; i < kRows; ++i)
          for (std::int64_t d = 0; d < kDim; ++d)
            at(in.query, 0, i, d) *= i % 3 == 0 ? 1e20F : i % 3 == 1 ? 3e7F : 0;
        for (std::int64_t i = 2; i < kRows; i += 3) at(in.query, 0, i, 0) = 1e10F;
        if (with_infinity) at(in.value, 0, 70, 3) = kInfinity;
        const AttentionOptions options{.causal = causal,
                                       .align = heed::Align::bottom_right,
                                       .dropout = {.probability = dropped, .seed = 5},
                                       .need = kAllButScores};
        const AttentionResult result = run(in, options);
        EXPECT_EQ(result.recomputed_rows, kRows);
        const heed::test::Naive naive = heed::test::naive_attention(in.query, in.key, in.value, options);
        for (std::int64_t i = 0; i < kRows; ++i) {
          const auto n = static_cast<std::size_t>(i);
          const double lse = static_cast<double>(naive.lse(0, 0, i));
          ASSERT_NEAR(result.lse.values<float>()[n], lse, 1e-7 * std::abs(lse)) << i;
          ASSERT_NEAR(result.entropy.values<float>()[n], static_cast<double>(naive.entropy(0, 0, i)), 1e-5)
              << i;
          for (std::int64_t j = 0; j < kKeys; ++j)
            ASSERT_NEAR(result.weights.values<float>()[static_cast<std::size_t>(i * kKeys + j)],
                        static_cast<double>(naive.weights(0, 0, i, j)), 1e-6);
          for (std::int64_t c = 0; c < kDim; ++c) {
            const float got = result.output.values<float>()[static_cast<std::size_t>(i * kDim + c)];
            const double expected = static_cast<double>(naive.output(0, 0, i, c));
            if (!std::isfinite(expected))
              ASSERT_TRUE(std::isnan(expected) ? std::isnan(got) : got == kInfinity) << i << ' ' << c;
            else
              ASSERT_NEAR(got, expected, 2e-6) << i << ' ' << c;
          }
        }
      }
}

// A value that is not finite concerns the rows of its own packed sequence alone.
TEST(RecomputedRows, OfAPackedSequenceDoNotSeeTheValuesOfAnother) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  Inputs in = inputs(1, 60, 60, 8);
  for (float& x : in.query.values<float>()) x *= 1e20F;
  Tensor offsets({3}, DType::i64);
  for (const std::int64_t s : {1, 2}) offsets.at<std::int64_t>(s) = 30 * s;
  const AttentionOptions options{.query_segments = offsets, .key_segments = offsets};
  const AttentionResult clean = run(in, options);
  EXPECT_EQ(clean.recomputed_rows, 60);
  for (const std::int64_t bad : {10, 40}) {
    Inputs with = {in.query, in.key, Tensor::copy_of(in.value, DType::f32)};
    for (std::int64_t c = 0; c < 8; ++c) at(with.value, 0, bad, c) = kInfinity;
    const AttentionResult result = run(with, options);
    for (std::int64_t i = 0; i < 60; ++i)
      for (std::int64_t c = 0; c < 8; ++c) {
        const auto n = static_cast<std::size_t>(i * 8 + c);
        if ((i < 30) == (bad < 30))
          ASSERT_FALSE(std::isfinite(result.output.values<float>()[n])) << i;
        else
          ASSERT_EQ(result.output.values<float>()[n], clean.output.values<float>()[n]) << i;
      }
  }
}

// A score that is the sum of both infinities makes every weight of its row NaN, wherever its key stands.
TEST(RecomputedRows, AScoreThatIsNaNMakesItsRowNaN) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  constexpr std::int64_t kKeys = 203;
  for (const std::int64_t bad : {0, 63, 64, 130, 200, 202}) {
    Inputs in = inputs(1, 3, kKeys, 8);
    for (float& x : in.query.values<float>()) x = std::abs(x);
    at(in.key, 0, bad, 2) = kInfinity;
    at(in.key, 0, bad, 3) = -kInfinity;
    Tensor mask({3, kKeys}, DType::boolean);
    for (std::int64_t i = 0; i < 3; ++i)
      for (std::int64_t j = 0; j < kKeys; ++j) mask.at<bool>(i, j) = i == 1 || j != bad;
    const AttentionResult result = run(in, {.mask = mask, .need = kAllButScores});
    EXPECT_EQ(result.recomputed_rows, 1);
    const auto is_nan = [](float x) { return std::isnan(x); };
    const auto weights = result.weights.values<float>().subspan(kKeys, kKeys);
    EXPECT_TRUE(std::all_of(weights.begin(), weights.end(), is_nan)) << bad;
    const auto output = result.output.values<float>();
    EXPECT_TRUE(std::all_of(output.begin() + 8, output.begin() + 16, is_nan)) << bad;
    EXPECT_EQ(std::count_if(output.begin(), output.end(), is_nan), 8) << bad;
    EXPECT_TRUE(is_nan(result.lse.values<float>()[1]));
  }
}

// A sum of products that overflows on the way stays infinite; a score of 0 would count as a forbidden key.
// When few rows read keys in place, only the score itself shows it.
TEST(RecomputedRows, AScoreWhoseSumOverflowsOnItsWayCounts) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  constexpr std::int64_t kKeys = 250, kDim = 128;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t rows : {1, 2, 8, 20, 40}) {
      SCOPED_TRACE(testing::Message() << heed::name_of(dtype) << ", " << rows << " rows");
      Inputs in = inputs(1, rows, kKeys, kDim);
      for (float& x : in.query.values<float>()) x = 0x1p50F;
      for (float& x : in.key.values<float>()) x = 0;
      // One accumulator sums the first two products; the others are added one by one.
      for (const std::int64_t d : {0, 16}) at(in.key, 0, 5, d) = -0x1p77F;
      for (const std::int64_t d : {32, 64}) at(in.key, 0, 5, d) = 0x1p77F;
      for (Tensor* tensor : {&in.query, &in.key, &in.value}) *tensor = Tensor::copy_of(*tensor, dtype);
      const AttentionResult result = run(in, {.need = Need::weights});
      for (const float weight : result.weights.values<float>()) ASSERT_NEAR(weight, 1.0 / kKeys, 1e-6);
    }
}

// A forbidden NaN affects no row, so nothing is recomputed.
TEST(RecomputedRows, AForbiddenNaNCostsNothing) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  for (const std::int64_t rows : {3, 60}) {
    Inputs in = inputs(1, rows, 250, 16);
    Tensor mask({rows, 250}, DType::boolean);
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < 250; ++j) mask.at<bool>(i, j) = j != 100;
    const AttentionResult clean = run(in, {.mask = mask, .need = Need::lse | Need::weights});
    for (std::int64_t d = 0; d < 16; ++d) at(in.key, 0, 100, d) = kNaN;
    const AttentionResult result = run(in, {.mask = mask, .need = Need::lse | Need::weights});
    EXPECT_EQ(result.recomputed_rows, 0);
    EXPECT_TRUE(heed::test::same_bits(result, clean));
  }
}

// The same holds for a forbidden key whose scores f32 cannot hold, such as memory beyond a sequence.
TEST(RecomputedRows, AForbiddenLargeKeyCostsNothing) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  for (const std::int64_t rows : {3, 60, 300}) {
    Inputs in = inputs(1, rows, 250, 16);
    Tensor mask({rows, 250}, DType::boolean);
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < 250; ++j) mask.at<bool>(i, j) = j != 100;
    const AttentionOptions options{.mask = mask, .need = kAllButScores};
    const AttentionResult clean = run(in, options);
    for (std::int64_t d = 0; d < 16; ++d) at(in.key, 0, 100, d) = 1e12F;
    const AttentionResult result = run(in, options);
    EXPECT_EQ(result.recomputed_rows, 0);
    for (std::size_t n = 0; n < static_cast<std::size_t>(rows); ++n) {
      EXPECT_EQ(result.lse.values<float>()[n], clean.lse.values<float>()[n]);
      EXPECT_NEAR(result.entropy.values<float>()[n], clean.entropy.values<float>()[n], 1e-5);
    }
    EXPECT_TRUE(heed::test::same_bits(result.output, clean.output));
    EXPECT_TRUE(heed::test::same_bits(result.weights, clean.weights));
  }
}

// Records the largest number of work pieces that a parallel_for of the call offers to threads.
class PieceCounter {
 public:
  PieceCounter() {
    heed::set_parallel_for([this](std::int64_t count, int threads, const heed::ParallelBody& body) {
      if (threads > 1) most_ = std::max(most_, count);
      for (std::int64_t i = 0; i < count; ++i) body(i, static_cast<int>(i % threads));
    });
  }
  ~PieceCounter() { heed::set_parallel_for({}); }
  PieceCounter(const PieceCounter&) = delete;
  PieceCounter& operator=(const PieceCounter&) = delete;
  [[nodiscard]] std::int64_t most() const { return most_; }

 private:
  std::int64_t most_ = 0;
};

// A head with no row that f32 can hold, forward and backward.
TEST(RecomputedRows, AreSharedByAllThreads) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  constexpr std::int64_t kRows = 400;
  Inputs in = inputs(1, kRows, 30, 8);  // too few products for the kernel to use several threads
  for (float& x : in.query.values<float>()) x *= 1e20F;
  const Tensor grad = normal_tensor({1, kRows, 8}, 4, DType::f32);
  AttentionOptions options{.need = Need::lse, .kernel = Kernel::fused, .threads = 8};
  AttentionResult forward;
  {
    const PieceCounter counter;
    forward = heed::attention(in.query, in.key, in.value, options);
    EXPECT_EQ(forward.recomputed_rows, kRows);
    EXPECT_GE(counter.most(), 8);
  }
  const PieceCounter counter;
  const auto gradients =
      heed::attention_backward({in.query, in.key, in.value, forward.output, forward.lse, grad}, options);
  EXPECT_EQ(gradients.recomputed_rows, kRows);
  EXPECT_GE(counter.most(), 8);
}

// Two heads that share keys, packed sequences that end inside a block of rows, a shared bias and sinks: the
// order of the terms in every sum is fixed.
TEST(RecomputedRows, GradientBitsDoNotDependOnTheThreads) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  constexpr std::int64_t kRows = 150;
  Tensor query = normal_tensor({4, kRows, 8}, 1, DType::f32);
  const Tensor key = normal_tensor({2, kRows, 8}, 2, DType::f32),
               value = normal_tensor({2, kRows, 12}, 3, DType::f32),
               grad = normal_tensor({4, kRows, 12}, 4, DType::f32);
  for (std::int64_t h = 0; h < 4; ++h)
    for (std::int64_t i = h; i < kRows; i += 2)
      for (std::int64_t d = 0; d < 8; ++d) at(query, h, i, d) *= 1e7F;
  const Tensor sinks = normal_tensor({4}, 5, DType::f32);
  for (const heed::Dims& bias_size : {heed::Dims{4, kRows, kRows}, heed::Dims{1, kRows, kRows},
                                      heed::Dims{4, 1, kRows}, heed::Dims{4, kRows, 1}}) {
    const Tensor bias = normal_tensor(bias_size, 6, DType::f32);
    AttentionOptions options{.causal = true,
                             .bias = bias,
                             .sinks = sinks,
                             .need = Need::lse,
                             .kernel = Kernel::fused,
                             .threads = 1};
    const AttentionResult forward = heed::attention(query, key, value, options);
    const heed::AttentionBackwardInputs inputs{query, key, value, forward.output, forward.lse, grad};
    const auto one = heed::attention_backward(inputs, options, {.bias = true, .sinks = true});
    EXPECT_GT(one.recomputed_rows, 200);
    const auto expected =
        heed::test::naive_backward(inputs, options, heed::test::naive_attention(query, key, value, options));
    for (std::size_t n = 0; n < expected.key.values.size(); ++n)
      ASSERT_NEAR(one.key.values<float>()[n], static_cast<double>(expected.key.values[n]),
                  1e-6 + 5e-5 * static_cast<double>(expected.key_magnitude.values[n]));
    for (const int threads : {2, 3, 5}) {
      options.threads = threads;
      const auto several = heed::attention_backward(inputs, options, {.bias = true, .sinks = true});
      for (const auto member : {&heed::AttentionGradients::query, &heed::AttentionGradients::key,
                                &heed::AttentionGradients::value, &heed::AttentionGradients::bias,
                                &heed::AttentionGradients::sinks})
        EXPECT_TRUE(heed::test::same_bits(several.*member, one.*member)) << threads << " threads";
    }
  }
}

TEST(RecomputedRows, BitsDoNotDependOnTheThreads) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  Inputs in = inputs(2, 100, 250, 8);
  for (std::int64_t i = 0; i < 100; i += 2)
    for (std::int64_t d = 0; d < 8; ++d) at(in.query, i % 4 / 2, i, d) *= 1e20F;
  AttentionOptions options{.need = kEverything, .top_k = 2, .received_last = 30, .map = {5, 5}, .threads = 1};
  const AttentionResult one = run(in, options);
  EXPECT_EQ(one.recomputed_rows, 50);
  for (const int threads : {2, 3, 5}) {
    options.threads = threads;
    EXPECT_TRUE(heed::test::same_bits(run(in, options), one));
  }
}

// The option alone requests nothing if the caller gives no memory for the result.
TEST(RecomputedRows, TakeNoLongerForTopKThatNobodyTakes) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  Inputs in = inputs(1, 3, 5, 4);
  at(in.key, 0, 2, 1) = kNaN;
  for (const Kernel kernel : {Kernel::fused, Kernel::reference}) {
    Tensor output({1, 3, 4}, DType::f32);
    const AttentionOptions options{.top_k = std::int64_t{1} << 60, .kernel = kernel};
    heed::attention_into(in.query, in.key, in.value, options, {.output = output});
    for (const float number : output.values<float>()) EXPECT_TRUE(std::isnan(number));
  }
}

TEST(RecomputedRows, GradientsOfTheOtherRowsDoNotSufferFromOne) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  for (const std::int64_t rows : {20, 300}) {
    Inputs in = inputs(2, rows, rows, 16);
    const Tensor grad = normal_tensor({2, rows, 16}, 4, DType::f32);
    Tensor bias({2, rows, rows}, DType::f32), sinks({2}, DType::f32);
    for (std::int64_t d = 0; d < 16; ++d) at(in.query, 0, 7, d) *= 1e15F;
    AttentionOptions options{
        .causal = true, .bias = bias, .sinks = sinks, .need = Need::lse, .kernel = Kernel::fused};
    const AttentionResult forward = heed::attention(in.query, in.key, in.value, options);
    EXPECT_EQ(forward.recomputed_rows, 1);
    const heed::AttentionBackwardInputs inputs{in.query, in.key, in.value, forward.output, forward.lse, grad};
    const auto gradients = heed::attention_backward(inputs, options, {.bias = true, .sinks = true});
    ASSERT_EQ(gradients.kernel, Kernel::fused);
    EXPECT_EQ(gradients.recomputed_rows, 1);
    const heed::test::Naive naive = heed::test::naive_attention(in.query, in.key, in.value, options);
    const auto expected = heed::test::naive_backward(inputs, options, naive);
    const auto compare = [&](const Tensor& got, const heed::test::Cube& want,
                             const heed::test::Cube& magnitude, const char* name) {
      for (std::size_t n = 0; n < want.values.size(); ++n)
        ASSERT_NEAR(got.values<float>()[n], static_cast<double>(want.values[n]),
                    1e-6 + 5e-5 * static_cast<double>(magnitude.values[n]))
            << name << " " << n;
    };
    compare(gradients.query, expected.query, expected.query_magnitude, "dQ");
    compare(gradients.key, expected.key, expected.key_magnitude, "dK");
    compare(gradients.value, expected.value, expected.value_magnitude, "dV");
    compare(gradients.bias, expected.scores, expected.scores_magnitude, "dBias");
    for (std::size_t h = 0; h < 2; ++h) {
      double sum = 0, magnitude = 0;
      for (std::int64_t i = 0; i < rows; ++i) {
        sum += static_cast<double>(expected.sinks(0, static_cast<std::int64_t>(h), i));
        magnitude += static_cast<double>(expected.sinks_magnitude(0, static_cast<std::int64_t>(h), i));
      }
      EXPECT_NEAR(gradients.sinks.values<float>()[h], sum, 5e-5 * magnitude);
    }
  }
}

// Rows that see a NaN have NaN in dQ. Other rows, and keys that only they see, have their correct gradients.
TEST(RecomputedRows, GradientsBesideANaNAreThoseWithoutIt) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  constexpr std::int64_t kRows = 300, kBad = 200;
  for (const int which : {0, 1, 2}) {
    Inputs in = inputs(1, kRows, kRows, 16);
    Tensor grad = normal_tensor({1, kRows, 16}, 4, DType::f32);
    AttentionOptions options{.causal = true, .need = Need::lse, .kernel = Kernel::fused};
    const auto backward = [&] {
      const AttentionResult forward = heed::attention(in.query, in.key, in.value, options);
      return heed::attention_backward({in.query, in.key, in.value, forward.output, forward.lse, grad},
                                      options);
    };
    at(which == 0 ? in.query : which == 1 ? in.key : in.value, 0, kBad, 3) = kNaN;
    const auto gradients = backward();
    at(which == 0 ? in.query : which == 1 ? in.key : in.value, 0, kBad, 3) = 0.5F;
    // Excludes the rows that see it by setting their output gradient to 0.
    for (std::int64_t i = kBad; i < (which == 0 ? kBad + 1 : kRows); ++i)
      for (std::int64_t c = 0; c < 16; ++c) at(grad, 0, i, c) = 0;
    const auto clean = backward();
    for (std::int64_t i = 0; i < kRows; ++i)
      for (std::int64_t d = 0; d < 16; ++d) {
        const auto n = static_cast<std::size_t>(i * 16 + d);
        const bool sees = which == 0 ? i == kBad : i >= kBad;
        if (sees)
          ASSERT_TRUE(std::isnan(gradients.query.values<float>()[n])) << which << " " << i;
        else
          ASSERT_NEAR(gradients.query.values<float>()[n], clean.query.values<float>()[n], 1e-5)
              << which << " " << i;
        if (i <= kBad) {
          ASSERT_TRUE(std::isnan(gradients.key.values<float>()[n])) << which << " " << i;
        } else if (which == 0) {
          ASSERT_NEAR(gradients.key.values<float>()[n], clean.key.values<float>()[n], 1e-5)
              << which << " " << i;
        }
      }
  }
}

}  // namespace
