// The fused kernel's gradients against the definitions, on the instruction set that HEED_ISA names (CTest
// runs this for each).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "attention_support.hpp"
#include "describe_call.hpp"
#include "expect_tight.hpp"
#include "fused_calls.hpp"
#include "gradient_errors.hpp"
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
using heed::test::document_calls;
using heed::test::extreme_calls;
using heed::test::Path;
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

// Keys on both sides of 192, where rows begin to be normalised by the lse that was given; some rows have one
// that is too large for it.
heed::test::CallLimits threshold_calls() {
  heed::test::CallLimits limits = small_calls();
  limits.batches = {1, 2};
  limits.query_lengths = {1, 12, 13, 40, 97};
  limits.lengths = {150, 191, 192, 193, 300, 777};
  limits.dims = {5, 16};
  limits.contiguous = 0.6;
  limits.poison = false;
  return limits;
}

struct Kind {
  heed::test::CallLimits limits;
  std::uint64_t count;
};

// What random calls came to.
struct Outcome {
  heed::test::PathWatch paths;
  heed::test::RowTally tally;
  std::string isa;
  // Calls with packed sequences on both sides of what decides a path:
  std::uint64_t plain_beside_renormalised = 0, in_parts_beside_undivided = 0;
};

void run_calls(const Kind& kind, Outcome& outcome) {
  for (std::uint64_t index = 0; index < heed::test::share_of(kind.count); ++index) {
    BackwardCall made = heed::test::backward_call(kSeed, index, kind.limits);
    made.inputs.grad_weights.reset();
    made.call.options.kernel = Kernel::fused;
    outcome.paths.start_call();
    const AttentionGradients gradients =
        heed::attention_backward(made.inputs, made.call.options, made.request);
    ASSERT_EQ(gradients.kernel, Kernel::fused);
    outcome.isa = gradients.isa;
    ASSERT_EQ(outcome.paths.taken_now(Path::backward_fallback), gradients.recomputed_rows)
        << describe(made.call);
    const std::string failure = heed::test::compare_gradients(
        made, gradients, rounding_of(made), outcome.tally,
        [&](auto b, auto h, auto i) { return outcome.paths.gradients_fell_back(b, h, i); });
    ASSERT_EQ(failure, "") << describe(made.call);
    const auto both = [&](Path a, Path b) {
      return outcome.paths.taken_now(a) > 0 && outcome.paths.taken_now(b) > 0 ? 1U : 0U;
    };
    outcome.plain_beside_renormalised +=
        both(Path::backward_sequence_plain, Path::backward_sequence_renormalised);
    outcome.in_parts_beside_undivided +=
        both(Path::backward_sequence_in_parts, Path::backward_sequence_undivided);
    outcome.paths.end_call();
  }
}

// In one test, so that what they reach together can be counted.
TEST(FusedBackward, RandomCallsAgreeWithTheDefinitionsAndTakeEveryPath) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  Outcome outcome;
  for (const Kind& kind :
       {Kind{small_calls(), 3000}, Kind{extreme_calls(), 300}, Kind{tile_calls(), 60}, Kind{long_calls(), 8},
        Kind{threshold_calls(), 150}, Kind{document_calls(), 450}}) {
    run_calls(kind, outcome);
    if (HasFatalFailure()) return;
  }
  outcome.paths.expect_each_taken(Path::backward_plain, Path::backward_fallback, outcome.isa);
  const std::uint64_t least = heed::test::share_of(100);
  std::cout << "calls with sequences plain beside renormalised: " << outcome.plain_beside_renormalised
            << ", in parts beside undivided: " << outcome.in_parts_beside_undivided << "\n";
  EXPECT_GE(outcome.plain_beside_renormalised, least);
  EXPECT_GE(outcome.in_parts_beside_undivided, least);
  heed::test::expect_tight(outcome.tally, 0.98);
}

// Beside the same gradients unfused in f32, in units of what rounding may do to a row (gradient_errors.hpp).
// The kernel is given an lse that was rounded to f32, and an output that was: what an unfused computation
// keeps in whole matrices.
TEST(FusedBackward, ErrsLittleMoreThanUnfusedGradientsInF32) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  if (heed::test::share_of(100) != 100) GTEST_SKIP() << "a share of the calls is too few to compare means";
  heed::test::AllGradientErrors errors;
  heed::test::PathWatch paths;
  int fallen_back = 0;  // calls of which the reference computed a head
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
    // Measured: dQ 1.00, dK 1.85 (largest 2.95), dV 1.75. A weight errs by an exponential (1.6 ulp at most),
    // a factor and the product of the two, where an unfused one errs by an exponential (0.5 ulp) and a
    // division; and keys carry scale log2(e), one more rounding each. (Half of these calls have NaN where
    // nobody looks: they went to the reference once, and the means were 1.45 and 1.52.)
    EXPECT_TRUE(e.mean_ratio() <= 1.95) << what << ": " << e.mean_ratio();
    EXPECT_TRUE(e.largest_ratio() <= 3.1) << what << ": " << e.largest_ratio();
  }
}

// NaN where NaN is expected, infinite where f32 holds no more; some 20 terms near 1.
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

// Numbers that f32 cannot hold, in the second of three heads, beside the definitions. The other heads are the
// kernel's own.
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

// A bias that all scores share changes no weight. Rows that fill a tile up have no query and lie as high as
// the bias itself: their exponentials overflow, and must not meet the zeros beside them.
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
