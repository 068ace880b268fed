// Compares the fused kernel's gradients with the definitions, on the instruction set in HEED_ISA (CTest runs
// this for each).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "attention_support.hpp"
#include "describe_call.hpp"
#include "fused_calls.hpp"
#include "gradient_errors.hpp"
#include "heed/parallel.hpp"
#include "path_watch.hpp"
#include "support.hpp"

namespace {

using heed::AttentionBackwardInputs;
using heed::AttentionGradients;
using heed::AttentionOptions;
using heed::DType;
using heed::Kernel;
using heed::Tensor;
using heed::test::BackwardCall;
using heed::test::long_gradient_calls;
using heed::test::small_calls;
using heed::test::tile_calls;
using heed::test::why_not_fused;

constexpr std::uint64_t kSeed = 20240811;

// Compares the errors with unfused gradients in f32, in units of a row's possible rounding error
// (gradient_errors.hpp). The kernel gets an lse and an output that were rounded to f32; the unfused
// computation keeps whole matrices instead.
TEST(FusedBackward, ErrsLittleMoreThanUnfusedGradientsInF32) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  if (!heed::test::makes_all_calls()) GTEST_SKIP() << "a share of the calls is too few to compare means";
  heed::test::AllGradientErrors errors;
  heed::test::PathWatch paths;
  int fallen_back = 0;  // calls in which the reference computed a head
  for (const auto& [limits, count] : {std::pair{small_calls(), 600U}, std::pair{tile_calls(), 40U}})
    for (std::uint64_t index = 0; index < heed::test::share_of(count); ++index) {
      heed::test::CallLimits f32 = limits;
      f32.dtypes = {DType::f32};
      BackwardCall made = heed::test::backward_call(kSeed + 2, index, f32);
      made.inputs.grad_weights.reset();
      made.call.options.kernel = Kernel::fused;
      paths.start_call();
      const AttentionGradients gradients =
          heed::attention_backward(made.inputs, made.call.options, made.request);
      if (paths.fell_back_at_all())
        ++fallen_back;
      else
        heed::test::add_errors(made, gradients, errors);
    }
  EXPECT_LT(fallen_back, 400);
  for (std::size_t g = 0; g < errors.size(); ++g) {
    const heed::test::GradientErrors& e = errors[g];
    const std::string what = heed::test::kGradientNames[g];
    RecordProperty(what + "_mean_ratio", std::to_string(e.mean_ratio()));
    RecordProperty(what + "_largest_ratio", std::to_string(e.largest_ratio()));
    // Measured: dQ 1.00, dK 1.85 (largest 2.95), dV 1.75. A weight has the error of an exponential (at most
    // 1.6 ulp), a factor and their product. An unfused weight has the error of an exponential (0.5 ulp) and a
    // division. Keys are multiplied by scale log2(e), which adds a rounding each. (Half of these calls have
    // NaN in masked rows. When such calls went to the reference, the means were 1.45 and 1.52.)
    EXPECT_TRUE(e.mean_ratio() <= 1.95) << what << ": " << e.mean_ratio();
    EXPECT_TRUE(e.largest_ratio() <= 3.1) << what << ": " << e.largest_ratio();
  }
}

// Matrix tiles round weights and their gradients to bf16, as unfused products in bf16 do.
TEST(FusedBackward, ErrsLittleMoreThanUnfusedGradientsInBf16) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  if (!heed::test::makes_all_calls()) GTEST_SKIP() << "a share of the calls is too few to compare means";
  heed::test::AllGradientErrors errors;
  heed::test::PathWatch paths;
  for (const auto& [limits, count] : {std::pair{small_calls(), 300U}, std::pair{tile_calls(), 40U}})
    for (std::uint64_t index = 0; index < count; ++index) {
      heed::test::CallLimits bf16 = limits;
      bf16.dtypes = {DType::bf16};
      bf16.poison = false;
      BackwardCall made = heed::test::backward_call(kSeed + 3, index, bf16);
      if (made.inputs.grad_output.dtype() != DType::bf16) continue;
      made.inputs.grad_weights.reset();
      made.call.options.kernel = Kernel::fused;
      paths.start_call();
      const AttentionGradients gradients =
          heed::attention_backward(made.inputs, made.call.options, made.request);
      if (!paths.fell_back_at_all()) heed::test::add_errors(made, gradients, errors, true);
    }
  for (std::size_t g = 0; g < 3; ++g) {  // the gradients that tiles compute
    const heed::test::GradientErrors& e = errors[g];
    const std::string what = heed::test::kGradientNames[g];
    EXPECT_GT(e.rows, 1000) << what;
    RecordProperty(what + "_mean_ratio", std::to_string(e.mean_ratio()));
    RecordProperty(what + "_largest_ratio", std::to_string(e.largest_ratio()));
    EXPECT_TRUE(e.mean_ratio() <= 1.5) << what << ": " << e.mean_ratio();
  }
}

// Gradients are linear in the output's gradient, however small it is. Splitting into bf16 parts would lose
// subnormal numbers.
TEST(FusedBackward, SmallGradientsAreAsExactAsOthers) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  const Tensor query = heed::test::normal_tensor({150, 24}, 1, DType::f32),
               key = heed::test::normal_tensor({200, 24}, 2, DType::f32);
  const Tensor value = heed::test::normal_tensor({200, 24}, 3, DType::f32);
  const Tensor slope = heed::test::normal_tensor({150, 24}, 4, DType::f32);
  Tensor small = Tensor::copy_of(slope, DType::f32);
  for (float& x : small.values<float>()) x *= 0x1p-112F;
  AttentionOptions options;
  options.need = heed::Need::lse;
  const auto forward = heed::attention(query, key, value, options);
  const auto gradients_of = [&](const Tensor& grad_output) {
    return heed::attention_backward({query, key, value, forward.output, forward.lse, grad_output}, options);
  };
  const AttentionGradients of_slope = gradients_of(slope), of_small = gradients_of(small);
  for (const auto member : {&AttentionGradients::query, &AttentionGradients::key, &AttentionGradients::value})
    for (std::size_t i = 0; i < (of_slope.*member).values<float>().size(); ++i)
      EXPECT_NEAR((of_small.*member).values<float>()[i] * 0x1p112F, (of_slope.*member).values<float>()[i],
                  2e-6);
}

// Expects NaN where NaN is expected, infinity where f32 overflows, and else the tolerance of about 20 terms
// near 1.
void expect_near(const char* name, const Tensor& got, const heed::test::Cube& expected) {
  ASSERT_EQ(static_cast<std::size_t>(got.count()), expected.values.size());
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    const auto x = static_cast<heed::test::Real>(got.values<float>()[i]);
    const heed::test::Real exact = expected.values[i];
    if (std::isnan(exact) ? std::isnan(x) : x == exact) continue;
    if (std::isinf(x) && std::abs(exact) >= heed::test::overflow_of(DType::f32)) continue;
    EXPECT_TRUE(std::abs(x - exact) <= 1e-5 * std::max<heed::test::Real>(1, std::abs(exact)))
        << name << ", element " << i << ": " << x << ", not " << exact;
  }
}

bool same_bits(const AttentionGradients& a, const AttentionGradients& b) {
  const auto same = [](const Tensor& x, const Tensor& y) { return heed::test::same_bits(x, y); };
  return same(a.query, b.query) && same(a.key, b.key) && same(a.value, b.value) && same(a.bias, b.bias) &&
         same(a.sinks, b.sinks);
}

// Split keys, several tasks per head, and biases that heads share must not change the bits.
TEST(FusedBackward, BitsDoNotDependOnTheThreads) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  for (const auto& [limits, count] : {std::pair{tile_calls(), 20U}, std::pair{long_gradient_calls(), 6U}})
    for (std::uint64_t index = 0; index < heed::test::share_of(count); ++index) {
      BackwardCall made = heed::test::backward_call(kSeed + 1, index, limits);
      made.inputs.grad_weights.reset();
      made.call.options.kernel = Kernel::fused;
      made.call.options.threads = 1;
      const AttentionGradients one = heed::attention_backward(made.inputs, made.call.options, made.request);
      for (const int threads : {2, 3, 7}) {
        made.call.options.threads = threads;
        ASSERT_TRUE(same_bits(one, heed::attention_backward(made.inputs, made.call.options, made.request)))
            << threads << " threads, " << describe(made.call);
      }
    }
}

// Tasks that add to the same elements of a shared bias never run side by side. Without sharers all tasks may.
TEST(FusedBackward, SharersOfABiasTakeTurns) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  constexpr std::int64_t kBatch = 4, kHeads = 3, kLength = 60, kDim = 32;
  std::vector<Tensor> inputs;
  for (const std::uint64_t seed : {1U, 2U, 3U, 4U})
    inputs.push_back(heed::test::normal_tensor({kBatch, kHeads, kLength, kDim}, seed, DType::f32));
  // The number of pieces of each parallel_for.
  using Pieces = std::vector<std::int64_t>;
  const auto pieces = [&](std::int64_t batch, std::int64_t heads) {
    const Tensor bias = heed::test::normal_tensor({batch, heads, kLength, kLength}, 5, DType::f32);
    AttentionOptions options{
        .bias = bias.view(), .need = heed::Need::lse, .kernel = Kernel::fused, .threads = 4};
    const auto forward = heed::attention(inputs[0], inputs[1], inputs[2], options);
    Pieces counts;
    heed::set_parallel_for([&](std::int64_t count, int threads, const heed::ParallelBody& body) {
      counts.push_back(count);
      for (std::int64_t i = 0; i < count; ++i) body(i, static_cast<int>(i % threads));
    });
    (void)heed::attention_backward({inputs[0], inputs[1], inputs[2], forward.output, forward.lse, inputs[3]},
                                   options, {.bias = true});
    heed::set_parallel_for({});
    return counts;
  };
  constexpr std::int64_t kAll = kBatch * kHeads;  // the first parallel_for prepares every head
  EXPECT_EQ(pieces(kBatch, kHeads), (Pieces{kAll, kAll}));
  EXPECT_EQ(pieces(1, kHeads), (Pieces{kAll, kHeads, kHeads, kHeads, kHeads}));
  Pieces one_by_one(1 + kAll, 1);
  one_by_one[0] = kAll;
  EXPECT_EQ(pieces(kBatch, 1), one_by_one);
  EXPECT_EQ(pieces(1, 1), one_by_one);
}

// Numbers that f32 cannot hold in the second of three heads, compared with the definitions. The kernel itself
// computes the other heads.
TEST(FusedBackward, NaNAndHugeNumbersGiveWhatTheDefinitionsGive) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e30F})
    for (const int which : {0, 1, 2}) {
      SCOPED_TRACE(::testing::Message() << bad << " in tensor " << which);
      Tensor input[3] = {heed::test::normal_tensor({1, 3, 20, 8}, 1, DType::f32),
                         heed::test::normal_tensor({1, 3, 20, 8}, 2, DType::f32),
                         heed::test::normal_tensor({1, 3, 20, 8}, 3, DType::f32)};
      const Tensor grad = heed::test::normal_tensor({1, 3, 20, 8}, 4, DType::f32);
      input[which].values<float>()[20 * 8 + 13] = bad;
      AttentionOptions options{.causal = true, .need = heed::Need::lse, .kernel = Kernel::reference};
      const auto result = heed::attention(input[0], input[1], input[2], options);
      const AttentionBackwardInputs inputs{input[0], input[1], input[2], result.output, result.lse, grad};
      options.kernel = Kernel::fused;
      heed::test::PathWatch paths;
      const AttentionGradients got = heed::attention_backward(inputs, options);
      for (std::int64_t i = 0; i < 20; ++i)
        EXPECT_FALSE(paths.gradients_fell_back(0, 0, i) || paths.gradients_fell_back(0, 2, i)) << i;
      const heed::test::NaiveGradients naive = heed::test::naive_backward(
          inputs, options, heed::test::naive_attention(input[0], input[1], input[2], options));
      expect_near("dQ", got.query, naive.query);
      expect_near("dK", got.key, naive.key);
      expect_near("dV", got.value, naive.value);
    }
}

// The kernel leaves out a row whose gradient f32 cannot hold, however high its scores are. A weight of that
// row would overflow and make the other rows' sums NaN. The definitions in f64 give the expected values of
// all rows.
TEST(FusedBackward, ARowThatIsLeftOutAddsNothingWhereverItsScoresLie) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  const Tensor query = heed::test::normal_tensor({1, 1, 20, 8}, 1, DType::f32),
               key = heed::test::normal_tensor({1, 1, 60, 8}, 2, DType::f32);
  Tensor grad = heed::test::normal_tensor({1, 1, 20, 8}, 3, DType::f32);
  grad.values<float>()[5 * 8] = 1e30F;
  for (const float height : {0.0F, 60.0F, 90.0F, 100.0F, 150.0F, 300.0F}) {
    SCOPED_TRACE(height);
    Tensor bias({1, 1, 20, 60}, DType::f32);
    for (std::size_t j = 0; j < 60; ++j) bias.values<float>()[5 * 60 + j] = height;
    AttentionOptions options{.bias = bias, .need = heed::Need::lse, .kernel = Kernel::fused};
    const auto result = heed::attention(query, key, key, options);
    const AttentionBackwardInputs inputs{query, key, key, result.output, result.lse, grad};
    const AttentionGradients got = heed::attention_backward(inputs, options);
    EXPECT_EQ(got.recomputed_rows, 1);
    const heed::test::NaiveGradients naive =
        heed::test::naive_backward(inputs, options, heed::test::naive_attention(query, key, key, options));
    expect_near("dQ", got.query, naive.query);
    expect_near("dK", got.key, naive.key);
    expect_near("dV", got.value, naive.value);
  }
}

// A bias that all scores share changes no weight. Rows that pad a tile have no query, so their scores equal
// the bias. Their exponentials overflow, and must not be multiplied by the zeros beside them.
TEST(FusedBackward, ALargeBiasForAllChangesNothing) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  const Tensor query = heed::test::normal_tensor({1, 13, 8}, 1, DType::f32),
               key = heed::test::normal_tensor({1, 60, 8}, 2, DType::f32),
               grad = heed::test::normal_tensor({1, 13, 8}, 3, DType::f32);
  const auto gradients = [&](const AttentionOptions& options) {
    AttentionOptions forward = options;
    forward.need = heed::Need::lse;
    const auto result = heed::attention(query, key, key, forward);
    return heed::attention_backward({query, key, key, result.output, result.lse, grad}, options);
  };
  const AttentionGradients plain = gradients({.kernel = Kernel::reference});
  for (float height = 80; height < 140; height += 0.5F) {
    const Tensor bias = Tensor::from<float>({height}, {1, 1});
    const AttentionGradients shifted = gradients({.bias = bias, .kernel = Kernel::fused});
    // A score of 140 has an ulp of 2^-16, and sums have 60 terms near 1.
    ASSERT_TRUE(heed::test::largest_difference(plain.query, shifted.query) <= 1e-3) << height;
    ASSERT_TRUE(heed::test::largest_difference(plain.key, shifted.key) <= 1e-3) << height;
    ASSERT_TRUE(heed::test::largest_difference(plain.value, shifted.value) <= 1e-3) << height;
  }
}

// Groups of 32 rows that see 64 keys beside groups that see all. Products of different lengths then wait for
// the same vectors (kernels/backward/gradient_flow.hpp), which must not work for longer than there are rows.
TEST(FusedBackward, GroupsThatSeeFewKeysLeaveTheGradientsOfOthersAlone) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  constexpr std::int64_t rows = 256, keys = 320;
  const Tensor query = heed::test::normal_tensor({1, 1, rows, 128}, 1, DType::bf16),
               key = heed::test::normal_tensor({1, 1, keys, 128}, 2, DType::bf16),
               value = heed::test::normal_tensor({1, 1, keys, 128}, 3, DType::bf16),
               grad = heed::test::normal_tensor({1, 1, rows, 128}, 4, DType::bf16);
  Tensor mask({rows, keys}, DType::boolean);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t k = 0; k < keys; ++k)
      mask.values<bool>()[static_cast<std::size_t>(r * keys + k)] = k < 64 || r / 64 != 1;
  AttentionOptions options{.mask = mask, .need = heed::Need::lse, .kernel = Kernel::reference};
  const auto result = heed::attention(query, key, value, options);
  const AttentionBackwardInputs inputs{query, key, value, result.output, result.lse, grad};
  const AttentionGradients expected = heed::attention_backward(inputs, options);
  options.kernel = Kernel::fused;
  const AttentionGradients got = heed::attention_backward(inputs, options);
  // Gradients are below 1, so both round them by up to 2^-9; what tiles round adds as much (2^-8 was seen).
  EXPECT_TRUE(heed::test::largest_difference(expected.query, got.query) <= 0.01);
  EXPECT_TRUE(heed::test::largest_difference(expected.key, got.key) <= 0.01);
  EXPECT_TRUE(heed::test::largest_difference(expected.value, got.value) <= 0.01);
}

TEST(FusedBackward, WithoutBatchesHeadsQueriesOrKeysLeavesNothingUndone) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  const auto gradients = [](const heed::Dims& q, const heed::Dims& k) {
    const Tensor query(q), key(k), bias({q[2], k[2]});
    const auto result = heed::attention(query, key, key, {.bias = bias, .need = heed::Need::lse});
    return heed::attention_backward({query, key, key, result.output, result.lse, result.output},
                                    {.bias = bias, .kernel = Kernel::fused}, {.bias = true});
  };
  const std::vector<std::pair<heed::Dims, heed::Dims>> shapes = {{{0, 2, 3, 4}, {0, 2, 5, 4}},
                                                                 {{2, 0, 3, 4}, {2, 0, 5, 4}},
                                                                 {{2, 0, 3, 4}, {2, 1, 5, 4}},
                                                                 {{1, 2, 0, 4}, {1, 2, 5, 4}},
                                                                 {{1, 2, 3, 4}, {1, 2, 0, 4}}};
  for (const auto& [q, k] : shapes) {
    const AttentionGradients got = gradients(q, k);
    EXPECT_EQ(got.query.shape(), q);
    EXPECT_EQ(got.key.shape(), k);
    EXPECT_EQ(got.bias.shape(), (heed::Dims{q[2], k[2]}));
    for (const Tensor* tensor : {&got.query, &got.key, &got.value, &got.bias})
      for (const float x : tensor->values<float>()) EXPECT_EQ(x, 0);
  }
}

}  // namespace
