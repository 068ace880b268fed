// Numbers at the limits of f32 and f16 in the fused kernel, compared with the definitions. The reference is
// no yardstick here, because the kernel falls back to it.
#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "attention_support.hpp"
#include "compare_results.hpp"
#include "naive_attention.hpp"
#include "path_watch.hpp"

namespace {

using heed::AttentionOptions;
using heed::AttentionResult;
using heed::DType;
using heed::Kernel;
using heed::Need;
using heed::Tensor;
using heed::test::normal_tensor;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

using heed::test::Cube;
using heed::test::Naive;
using heed::test::Real;

// The two largest weights of each row: NaN if its weights are NaN, 0 if fewer keys are allowed.
Cube largest_two(const Naive& naive) {
  Cube two(naive.batch, naive.heads, naive.queries, 2);
  for (std::int64_t h = 0; h < naive.heads; ++h)
    for (std::int64_t i = 0; i < naive.queries; ++i) {
      Real* best = two.row(0, h, i);
      for (std::int64_t j = 0; j < naive.keys; ++j) {
        const Real weight = naive.weights(0, h, i, j);
        if (weight > best[0])
          best[1] = std::exchange(best[0], weight);
        else if (weight > best[1])
          best[1] = weight;
      }
      if (std::isnan(naive.lse(0, h, i))) best[0] = best[1] = naive.lse(0, h, i);
    }
  return two;
}

struct FusedNumbers : ::testing::Test {
  void SetUp() override {
    const std::string reason = heed::test::why_not_fused();
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
};

// Expects equal elements, both NaN, or a difference within `tolerance` times the larger of `scale` and the
// number. Numbers beyond the dtype must be infinite.
void expect_equal(const char* name, const Tensor& got, const Cube& expected, double tolerance,
                  double scale = 1) {
  ASSERT_EQ(got.count(), static_cast<std::int64_t>(expected.values.size())) << name;
  const Tensor wide = Tensor::copy_of(got, DType::f64);
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    const double a = wide.values<double>()[i];
    const Real exact = expected.values[i];
    const bool overflows = std::abs(exact) >= heed::test::overflow_of(got.dtype());
    const double b =
        static_cast<double>(overflows ? std::copysign(std::numeric_limits<Real>::infinity(), exact) : exact);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    EXPECT_TRUE(std::abs(a - b) <= tolerance * std::max(scale, std::abs(b)))
        << name << ", element " << i << ": " << a << ", not " << b;
  }
}

// Compares all results of a call with the naive computation. The kernel itself must compute at least `least`
// rows.
void expect_definitions(std::int64_t least, const Tensor& query, const Tensor& key, const Tensor& value,
                        AttentionOptions options, double tolerance = 1e-5, double scale = 1) {
  options.need |= Need::lse | Need::max_score | Need::entropy | Need::weights | Need::received;
  options.top_k = 2;
  options.kernel = Kernel::fused;
  heed::test::PathWatch paths;
  const AttentionResult fused = heed::attention(query, key, value, options);
  EXPECT_EQ(fused.kernel, Kernel::fused);
  const Naive naive = heed::test::naive_attention(query, key, value, options);
  expect_equal("output", fused.output, naive.output, tolerance, scale);
  expect_equal("lse", fused.lse, naive.lse, tolerance);
  expect_equal("max_score", fused.max_score, naive.max_score, tolerance);
  expect_equal("entropy", fused.entropy, naive.entropy, tolerance);
  expect_equal("weights", fused.weights, naive.weights, tolerance);
  expect_equal("received", fused.received, naive.received, tolerance);
  expect_equal("top_k_weight", fused.top_k_weight, largest_two(naive), tolerance);
  std::int64_t own = 0;
  for (std::int64_t h = 0; h < naive.heads; ++h)
    for (std::int64_t i = 0; i < naive.queries; ++i) own += paths.fell_back(0, h, i) ? 0 : 1;
  EXPECT_GE(own, least);
}

// One head of 30 queries and 50 keys, beside an ordinary head.
struct Inputs {
  Tensor query = normal_tensor({2, 30, 8}, 1, DType::f32);
  Tensor key = normal_tensor({2, 50, 8}, 2, DType::f32);
  Tensor value = normal_tensor({2, 50, 8}, 3, DType::f32);
  float& q(std::size_t row, std::size_t column) { return query.values<float>()[row * 8 + column]; }
  float& k(std::size_t row, std::size_t column) { return key.values<float>()[row * 8 + column]; }
  float& v(std::size_t row, std::size_t column) { return value.values<float>()[row * 8 + column]; }
};

TEST_F(FusedNumbers, InputsOf1e38GiveWhatTheDefinitionsGive) {
  Inputs in;
  in.q(3, 2) = 1e38f;
  in.k(20, 2) = -1e38f;
  in.k(7, 1) = 3e38f;
  in.v(9, 0) = 3e38f;
  for (const bool causal : {false, true})
    expect_definitions(30, in.query, in.key, in.value, {.causal = causal});
}

TEST_F(FusedNumbers, LargeValuesAloneGiveFiniteMeans) {
  Inputs in;
  for (float& x : in.value.values<float>()) x = 3.4e38f;
  expect_definitions(0, in.query, in.key, in.value, {});
  const Tensor value = Tensor::copy_of(in.value, DType::bf16);  // rounds to the largest bf16, or to infinity
  expect_definitions(0, Tensor::copy_of(in.query, DType::bf16), Tensor::copy_of(in.key, DType::bf16), value,
                     {}, 0x1p-7);
}

TEST_F(FusedNumbers, TheLargestHalvesAreTheirOwnMean) {
  const Tensor query = normal_tensor({30, 8}, 1, DType::f16);
  const Tensor key = normal_tensor({50, 8}, 2, DType::f16);
  Tensor value({50, 8}, DType::f32);
  for (float& x : value.values<float>()) x = 65504;
  const auto result =
      heed::attention(query, key, Tensor::copy_of(value, DType::f16), {.kernel = Kernel::fused});
  const Tensor output = Tensor::copy_of(result.output, DType::f32);
  for (float x : output.values<float>()) EXPECT_EQ(x, 65504.0f);
}

TEST_F(FusedNumbers, DenormalInputsAreNotZero) {
  Inputs in;
  for (float& x : in.value.values<float>()) x *= 1e-40f;
  // The absolute tolerance is two of the smallest denormals. Numbers of 10^-40 are rounded twice: in the
  // weights and in the output.
  expect_definitions(60, in.query, in.key, in.value, {}, 1e-5, 0x1p-148 / 1e-5);
  Inputs tiny;
  for (float& x : tiny.query.values<float>()) x *= 1e-40f;
  for (float& x : tiny.key.values<float>()) x *= 1e30f;
  expect_definitions(0, tiny.query, tiny.key, tiny.value, {});
}

// Units of bf16 products take numbers below 2^-126 for 0, and products below it. An output is a mean of
// values, so it misses a few 2^-126 (1.2e-38) at most.
TEST_F(FusedNumbers, TinyBf16ValuesAreRightTo4e38) {
  for (const std::int64_t rows : {1, 8, 40}) {
    const auto bf16 = [](const heed::Dims& shape, std::uint64_t seed, float size) {
      Tensor x = normal_tensor(shape, seed, DType::f32);
      for (float& element : x.values<float>()) element *= size;
      return Tensor::copy_of(x, DType::bf16);
    };
    const Tensor query = bf16({2, rows, 32}, 1, 1), key = bf16({2, 64, 32}, 2, 1);
    for (const float size : {1e-36f, 1e-37f, 1e-39f}) {
      const Tensor value = bf16({2, 64, 32}, 3, size);
      const Tensor fused = attention(query, key, value, {.kernel = Kernel::fused}).output;
      const Tensor expected = attention(query, key, value, {.kernel = Kernel::reference}).output;
      for (std::int64_t i = 0; i < fused.count(); ++i) {
        const auto number = [&](const Tensor& x) {
          return heed::to_float(x.values<heed::BFloat16>()[static_cast<std::size_t>(i)]);
        };
        // The second term is for the rounding of such outputs to bf16.
        ASSERT_NEAR(number(fused), number(expected), 4e-38 + 0x1p-8 * 3 * static_cast<double>(size))
            << rows << " " << size;
      }
    }
  }
}

TEST_F(FusedNumbers, AnInfiniteScoreMakesItsRowNaNAndNoOther) {
  Inputs in;
  in.k(5, 0) = kInfinity;
  expect_definitions(35, in.query, in.key, in.value, {.causal = true});
  Tensor bias({30, 50}, DType::f32);
  bias.values<float>()[4 * 50 + 11] = kInfinity;
  expect_definitions(58, normal_tensor({2, 30, 8}, 1, DType::f32), normal_tensor({2, 50, 8}, 2, DType::f32),
                     in.value, {.bias = bias});
}

// A single KV block. The f32 matrix tiles hold such values only together with smaller ones.
TEST_F(FusedNumbers, HugeValuesBesideTinyOnesLoseNeither) {
  Inputs in;
  for (float& x : in.value.values<float>()) x = std::abs(x);  // makes means without cancellation
  for (std::size_t key = 0; key < 2 * 50; ++key) {
    in.value.values<float>()[key * 8] *= 1e10F;
    in.value.values<float>()[key * 8 + 1] *= 1e-40F;
  }
  const char* isa = std::getenv("HEED_ISA");
  const bool tiles = isa != nullptr && std::string_view(isa).starts_with("amx_f32");
  // The tolerance of DenormalInputsAreNotZero.
  expect_definitions(tiles ? 0 : 60, in.query, in.key, in.value, {}, 1e-5, 0x1p-148 / 1e-5);
}

TEST_F(FusedNumbers, NaNStaysWithTheRowsThatMayReadIt) {
  Inputs in;
  in.k(12, 3) = kNaN;
  in.v(20, 5) = kNaN;
  in.q(25, 1) = kNaN;
  // Matrix tiles multiply 32 rows by a key that any of them may see, so all rows of the first head are
  // recomputed.
  const char* isa = std::getenv("HEED_ISA");
  const bool tiles = isa != nullptr && std::string_view(isa).starts_with("amx_f32");
  expect_definitions(tiles ? 30 : 42, in.query, in.key, in.value, {.causal = true});
  expect_definitions(tiles ? 30 : 46, in.query, in.key, in.value, {.causal = true, .window = {3, -1}});
  const Tensor lengths = Tensor::from<std::int64_t>({12}, {1});
  expect_definitions(59, in.query, in.key, in.value, {.kv_lengths = lengths});
}

TEST_F(FusedNumbers, ScoresFarApartLeaveOneKey) {
  Inputs in;
  for (float& x : in.query.values<float>()) x *= 3000;
  expect_definitions(60, in.query, in.key, in.value, {.causal = true},
                     2e-3);  // scores of 10^4 are rounded to 10^-3
  Tensor bias({30, 50}, DType::f32);
  for (std::size_t i = 0; i < bias.values<float>().size(); ++i)
    bias.values<float>()[i] = i % 3 == 0 ? -1e30f : i % 3 == 1 ? -3e38f : 0.0f;
  expect_definitions(60, normal_tensor({2, 30, 8}, 1, DType::f32), in.key, in.value, {.bias = bias});
  for (float& x : bias.values<float>()) x = -1e30f;
  expect_definitions(0, normal_tensor({2, 30, 8}, 1, DType::f32), in.key, in.value, {.bias = bias});
}

// Few queries read keys of several KV blocks at once, and their shifts change on the way. The weights of
// earlier keys must be rescaled then. Each lane's keys grow by 6 every 150 keys, and so do scores. Weights of
// one step are still visible beside the next step's.
TEST_F(FusedNumbers, FewQueriesSeeScoresThatGrowAlongTheKeys) {
  constexpr std::int64_t kKeys = 1900;
  for (const std::int64_t rows : {1, 3, 5}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const Tensor value = normal_tensor({1, kKeys, 32}, 3, dtype);
      Tensor query = normal_tensor({1, rows, 64}, 1, DType::f32);
      Tensor key = normal_tensor({1, kKeys, 64}, 2, DType::f32);
      for (std::size_t r = 0; r < query.values<float>().size(); r += 64) query.values<float>()[r] = 8;
      for (std::size_t k = 0; k < kKeys; ++k)
        key.values<float>()[k * 64] = 6.0f * static_cast<float>(k / 150);
      query = Tensor::copy_of(query, dtype);
      key = Tensor::copy_of(key, dtype);
      // 16-bit outputs have 8 or 11 bits.
      const double tolerance = dtype == DType::f32 ? 1e-5 : 8e-3;
      for (const bool causal : {false, true})
        expect_definitions(rows, query, key, value, {.causal = causal, .align = heed::Align::bottom_right},
                           tolerance);
    }
  }
}

#if defined(__SSE__)
// Rounding, denormals and exceptions: the control register without its status flags.
constexpr unsigned kControl = 0xffc0;

// One row has its first key after whole KV blocks that only the other row sees. Until then its shift is far
// above its scores.
TEST_F(FusedNumbers, ARowWhoseFirstKeyComesLateGivesTheOthersNothing) {
  constexpr std::int64_t kKeys = 600, kFirst = 400, kDim = 16;
  Tensor query({1, 1, 2, kDim}, DType::f32), key({1, 1, kKeys, kDim}, DType::f32);
  for (float& x : query.values<float>()) x = 40;
  for (float& x : key.values<float>()) x = -1;
  Tensor mask({2, kKeys}, DType::boolean);
  for (std::int64_t i = 0; i < 2 * kKeys; ++i)
    mask.values<bool>()[static_cast<std::size_t>(i)] = i >= kKeys || i >= kFirst;
  AttentionOptions options;
  options.kernel = Kernel::fused;
  options.mask = mask;
  options.scale = 1;
  options.need = Need::received | Need::weights;
  const AttentionResult result = heed::attention(query, key, key, options);
  for (std::int64_t j = 0; j < kKeys; ++j) {
    const auto at = static_cast<std::size_t>(j);
    const double first = j < kFirst ? 0 : 1.0 / (kKeys - kFirst), second = 1.0 / kKeys;
    // Equal weights: a sum of up to 600 of them, and a division.
    EXPECT_NEAR(static_cast<double>(result.weights.values<float>()[at]), first, 1e-8) << "key " << j;
    EXPECT_NEAR(static_cast<double>(result.received.values<float>()[at]), first + second, 1e-8)
        << "key " << j;
  }
}

// Many rows give the same weights to two keys. With plain summation, block by block, each of 2,048 additions
// would lose the same part of an ulp, about 256 ulp in all. The sum of a block's 192 weights is plain. It may
// lose half of 192 ulp, the same in every block.
TEST_F(FusedNumbers, WhatAKeyReceivedErrsNoMoreWithManyRows) {
  const std::int64_t rows = 2048 * 192;
  const Tensor query = Tensor::from<float>({1}, {1, 1, 1, 1});
  const Tensor value({1, 1, 2, 1}, DType::f32);
  const int steps = heed::test::is_emulated() ? 1 : 6;  // emulation is slow
  for (int step = 0; step < steps; ++step) {
    const float score = -1 + 0.3173F * static_cast<float>(step);
    const Tensor key = Tensor::from<float>({score, 0}, {1, 1, 2, 1});
    const Tensor received = heed::attention(query.view().expand({1, 1, rows, 1}), key, value,
                                            {.scale = 1, .need = Need::received, .kernel = Kernel::fused})
                                .received;
    const double weight = 1 / (1 + std::exp(-static_cast<double>(score)));
    const double exact[2] = {weight * static_cast<double>(rows), (1 - weight) * static_cast<double>(rows)};
    for (std::size_t j = 0; j < 2; ++j)
      EXPECT_NEAR(static_cast<double>(received.values<float>()[j]), exact[j], 100 * 0x1p-24 * exact[j])
          << score;
  }
}

TEST_F(FusedNumbers, TheCallersFloatingPointModeStaysAsItWas) {
  const Inputs in;
  const unsigned before = _mm_getcsr();
  for (const unsigned mode : {before, before | 0x8040u, (before & ~0x6000u) | 0x2000u}) {
    _mm_setcsr(mode);
    (void)heed::attention(in.query, in.key, in.value, {.kernel = Kernel::fused});
    const unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    EXPECT_EQ(after & kControl, mode & kControl);
  }
}
#endif

TEST_F(FusedNumbers, TheCallersRoundingModeStaysAsItWas) {
  const Inputs in;
  const int before = std::fegetround();
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  (void)heed::attention(in.query, in.key, in.value, {.kernel = Kernel::fused});
  const int after = std::fegetround();
  ASSERT_EQ(std::fesetround(before), 0);
  EXPECT_EQ(after, FE_UPWARD);
}

}  // namespace
