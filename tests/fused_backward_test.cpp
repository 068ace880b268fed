// The fused kernel's gradients against the definitions, on the instruction set that HEED_ISA names (CTest
// runs this for each).
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
#include "support.hpp"

namespace {

using heed::AttentionBackwardInputs;
using heed::AttentionGradients;
using heed::AttentionOptions;
using heed::DType;
using heed::Kernel;
using heed::Tensor;
using heed::test::BackwardCall;
using heed::test::small_calls;
using heed::test::tile_calls;
using heed::test::why_not_fused;

constexpr std::uint64_t kSeed = 20240811;

// f32 arithmetic; the slack is that of the forward pass (fused_test.cpp), and covers the rounding of lse to
// f32 besides. Delta is taken from the output as it was rounded: half a unit of its dtype, twice; in f16
// small outputs err by up to 2^-25 each.
heed::test::Rounding rounding_of(const BackwardCall& made) {
  const DType output = made.inputs.output.dtype();
  const double delta = output == DType::bf16 ? 0x1p-8 : output == DType::f16 ? 0x1p-10 : 0;
  return {
      .unit = 0x1p-24, .slack = 3, .weight_unit = delta, .floor = output == DType::f16 ? 0x1p-18 : 0x1p-100};
}

// Several chunks of keys and blocks of rows; from 769 keys on, parts.
heed::test::CallLimits long_calls() {
  heed::test::CallLimits limits = small_calls();
  limits.batches = {1};
  limits.kv_heads = {1};
  limits.lengths = {97, 193, 801};
  limits.dims = {5, 16};
  return limits;
}

void run_calls(const heed::test::CallLimits& limits, std::uint64_t count) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  for (std::uint64_t index = 0; index < heed::test::share_of(count); ++index) {
    BackwardCall made = heed::test::backward_call(kSeed, index, limits);
    made.inputs.grad_weights.reset();
    made.call.options.kernel = Kernel::fused;
    const AttentionGradients gradients =
        heed::attention_backward(made.inputs, made.call.options, made.request);
    ASSERT_EQ(gradients.kernel, Kernel::fused);
    ASSERT_EQ(heed::test::compare_gradients(made, gradients, rounding_of(made)), "") << describe(made.call);
  }
}

TEST(FusedBackward, SmallRandomCallsAgreeWithTheDefinitions) { run_calls(small_calls(), 3000); }
TEST(FusedBackward, RandomCallsOfTileSizesAgreeWithTheDefinitions) { run_calls(tile_calls(), 60); }
TEST(FusedBackward, LongRandomCallsAgreeWithTheDefinitions) { run_calls(long_calls(), 8); }

// Beside the same gradients unfused in f32, in units of what rounding may do to a row (gradient_errors.hpp).
// The kernel is given an lse that was rounded to f32, and an output that was: what an unfused computation
// keeps in whole matrices.
TEST(FusedBackward, ErrsLittleMoreThanUnfusedGradientsInF32) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  if (heed::test::share_of(100) != 100) GTEST_SKIP() << "a share of the calls is too few to compare means";
  heed::test::AllGradientErrors errors;
  for (const auto& [limits, count] : {std::pair{small_calls(), 600U}, std::pair{tile_calls(), 40U}})
    for (std::uint64_t index = 0; index < heed::test::share_of(count); ++index) {
      heed::test::CallLimits f32 = limits;
      f32.dtypes = {DType::f32};
      BackwardCall made = heed::test::backward_call(kSeed + 2, index, f32);
      made.inputs.grad_weights.reset();
      made.call.options.kernel = Kernel::fused;
      heed::test::add_errors(made, heed::attention_backward(made.inputs, made.call.options, made.request),
                             errors);
    }
  for (std::size_t g = 0; g < errors.size(); ++g) {
    const heed::test::GradientErrors& e = errors[g];
    const std::string what = heed::test::kGradientNames[g];
    RecordProperty(what + "_mean_ratio", std::to_string(e.mean_ratio()));
    RecordProperty(what + "_largest_ratio", std::to_string(e.largest_ratio()));
    // Measured: dQ 1.00, dK 1.85 (largest 2.95), dV 1.75. A weight errs by an exponential (1.6 ulp at most),
    // a factor and the product of the two, where an unfused one errs by an exponential (0.5 ulp) and a
    // division; and keys carry scale log2(e), one more rounding each. (Half of these calls have NaN where
    // nobody looks: they went to the reference once, and the means were 1.45 and 1.52.)
    EXPECT_TRUE(e.mean_ratio() <= 1.95) << what << ": " << e.mean_ratio();
    EXPECT_TRUE(e.largest_ratio() <= 3.1) << what << ": " << e.largest_ratio();
  }
}

bool same_bits(const AttentionGradients& a, const AttentionGradients& b) {
  const auto same = [](const Tensor& x, const Tensor& y) { return heed::test::same_bits(x, y); };
  return same(a.query, b.query) && same(a.key, b.key) && same(a.value, b.value) && same(a.bias, b.bias) &&
         same(a.sinks, b.sinks);
}

// Keys in parts, several tasks a head, biases that heads share: none of it may be seen in the bits.
TEST(FusedBackward, BitsDoNotDependOnTheThreads) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  for (const auto& [limits, count] : {std::pair{tile_calls(), 20U}, std::pair{long_calls(), 6U}})
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
