// Scores that a function or an expression changes, on every target. Other options express the same change for
// the definitions.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>

#include "attention_support.hpp"
#include "backward_call.hpp"
#include "each_target.hpp"
#include "fused_calls.hpp"
#include "fused_rounding.hpp"
#include "gradient_errors.hpp"
#include "gradient_rounding.hpp"
#include "path_watch.hpp"
#include "support.hpp"

namespace {

using heed::AttentionOptions;
using heed::DType;
using heed::Kernel;
using heed::ScoreMod;
using heed::Tensor;
using heed::test::BackwardCall;
using heed::test::EachTarget;
using heed::test::RandomCall;

constexpr std::uint64_t kSeed = 20261125;

// The same three functions, compiled and as expressions.
ScoreMod function_of(std::uint64_t which) {
  using Index = std::int64_t;
  switch (which % 6) {
    case 0:
      return ScoreMod::function([](auto s, Index, Index, Index, Index) {
        using std::tanh;
        return 20 * tanh(s / 20);
      });
    case 1:
      return ScoreMod::function([](auto s, Index, Index, Index i, Index j) {
        return s - static_cast<float>(std::abs(i - j)) * 0.25F;
      });
    case 2:
      return ScoreMod::function([](auto s, Index, Index, Index i, Index j) {
        return j <= i ? s : decltype(s)(-std::numeric_limits<float>::infinity());
      });
    case 3:
      return ScoreMod::expression("20 * tanh(s / 20)");
    case 4:
      return ScoreMod::expression("s - 0.25 * abs(i - j)");
    default:
      return ScoreMod::expression("where(j <= i, s, -inf)");
  }
}

// A call whose options express the function for the definitions.
struct ModifiedCall {
  heed::test::CheckedCall checked;
  AttentionOptions with_function;
};

ModifiedCall modified_call(std::uint64_t index, heed::test::CallLimits limits) {
  limits.poison = false;
  RandomCall call = heed::test::random_call(kSeed, index, limits);
  ModifiedCall made;
  AttentionOptions& options = call.options;
  const std::int64_t queries = call.query.size(-2), keys = call.key.size(-2);
  if (index % 3 == 0) options.softcap = 0;
  if (index % 3 == 1) options.bias.reset();
  if (index % 3 == 2) options.mask.reset();
  options.need = static_cast<heed::Need>(static_cast<std::uint32_t>(options.need) &
                                         ~static_cast<std::uint32_t>(heed::Need::scores));
  made.with_function = options;
  made.with_function.score_mod = function_of(index);
  if (index % 3 == 0) options.softcap = 20;
  if (index % 3 == 1) {
    Tensor& bias = call.memory.emplace_back(heed::Dims{queries, keys}, DType::f64);
    for (std::int64_t i = 0; i < queries; ++i)
      for (std::int64_t j = 0; j < keys; ++j)
        bias.at<double>(i, j) = -0.25 * static_cast<double>(std::abs(i - j));
    options.bias = bias.view();
  }
  if (index % 3 == 2) {
    Tensor& mask = call.memory.emplace_back(heed::Dims{queries, keys}, DType::boolean);
    for (std::int64_t i = 0; i < queries; ++i)
      for (std::int64_t j = 0; j < keys; ++j) mask.at<bool>(i, j) = j <= i;
    options.mask = mask.view();
  }
  heed::test::Naive naive = heed::test::naive_attention(call.query, call.key, call.value, options);
  made.checked = {std::move(call), std::move(naive)};
  return made;
}

// Two roundings more than a bias, because scores are converted to natural units and back.
heed::test::Rounding with_slack(heed::test::Rounding rounding) {
  rounding.slack += 2;
  return rounding;
}

TEST(ScoreModCalls, AgreeWithOptionsThatMeanTheSame) {
  const EachTarget targets;
  std::map<std::string, heed::test::RowTally> tallies;
  heed::test::PathWatch paths;
  for (const auto& [limits, count] : {std::pair{heed::test::small_calls(), 900},
                                      {heed::test::tile_calls(), 60},
                                      {heed::test::decoding_calls(), 90},
                                      {heed::test::document_calls(), 12}})
    for (std::uint64_t index = 0; index < heed::test::share_of(static_cast<std::uint64_t>(count)); ++index) {
      ModifiedCall made = modified_call(index, limits);
      made.with_function.kernel = Kernel::fused;
      const auto& [call, naive] = made.checked;
      for (const std::string& target : targets.available()) {
        if (!targets.takes(target, index, 8)) continue;
        heed::set_target(target);
        paths.start_call();
        const auto result = heed::attention(call.query, call.key, call.value, made.with_function);
        ASSERT_EQ(result.kernel, Kernel::fused);
        const std::string failure = heed::test::compare_results(
            result, call.options, naive,
            with_slack(heed::test::fused_rounding(call.query.dtype(), call.options, target)), tallies[target],
            [&](auto b, auto h, auto i) { return paths.fell_back(b, h, i); });
        ASSERT_EQ(failure, "") << target << ", function " << index % 6 << ": " << describe(call);
      }
    }
}

TEST(ScoreModGradients, AgreeWithOptionsThatMeanTheSame) {
  const EachTarget targets;
  std::map<std::string, heed::test::RowTally> tallies;
  heed::test::PathWatch paths;
  for (const auto& [limits, count] : {std::pair{heed::test::small_calls(), 900},
                                      {heed::test::tile_calls(), 24},
                                      {heed::test::matrix_gradient_calls(), 24}})
    for (std::uint64_t index = 0; index < heed::test::share_of(static_cast<std::uint64_t>(count)); ++index) {
      ModifiedCall modified = modified_call(index, limits);
      BackwardCall made = heed::test::BackwardCallMaker(std::move(modified.checked)).make();
      made.inputs.grad_weights.reset();
      if (index % 3 == 1) made.request.bias = false;  // the bias stands for the function
      modified.with_function.kernel = Kernel::fused;
      for (const std::string& target : targets.available()) {
        if (!targets.takes(target, index, 8)) continue;
        heed::set_target(target);
        paths.start_call();
        const auto gradients = heed::attention_backward(made.inputs, modified.with_function, made.request);
        const std::string failure = heed::test::compare_gradients(
            made, gradients, with_slack(heed::test::gradient_rounding(made, target)), tallies[target],
            [&](auto b, auto h, auto i) { return paths.gradients_fell_back(b, h, i); });
        ASSERT_EQ(failure, "") << target << ", function " << index % 6 << ": " << describe(made.call);
      }
    }
}

// Attention that a function calls, with enough rows for matrix tiles of each dtype.
void attend_inside() {
  static const Tensor f32 = heed::test::normal_tensor({130, 16}, 5, DType::f32);
  static const Tensor bf16 = heed::test::normal_tensor({130, 16}, 5, DType::bf16);
  for (const Tensor* tensor : {&f32, &bf16}) (void)heed::attention(*tensor, *tensor, *tensor);
}
// s - j / 64. Some keys of some rows call attention.
ScoreMod function_that_attends(bool attends) {
  using Index = std::int64_t;
  return ScoreMod::function([attends](auto s, Index, Index, Index i, Index j) {
    if (attends && i % 32 == 7 && j % 96 == 0) attend_inside();
    return s - static_cast<float>(j) / 64;
  });
}

// Matrix tiles are registers, which the call under way uses, too. It has a tail, and
// no room for all keys in a KV block. Its rows are few, or they make several tasks.
void expect_attention_inside_changes_nothing(std::int64_t rows) {
  const EachTarget targets;
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    const Tensor query = heed::test::normal_tensor({1, 1, rows, 64}, 1, dtype);
    const Tensor key = heed::test::normal_tensor({1, 1, 330, 64}, 2, dtype);
    const Tensor value = heed::test::normal_tensor({1, 1, 330, 64}, 3, dtype);
    const Tensor grad_output = heed::test::normal_tensor({1, 1, rows, 64}, 4, dtype);
    for (const std::string& target : targets.available()) {
      heed::set_target(target);
      std::vector<heed::AttentionResult> results;
      std::vector<heed::AttentionGradients> gradients;
      for (const bool attends : {false, true}) {
        AttentionOptions options = {.score_mod = function_that_attends(attends), .kernel = Kernel::fused};
        options.need = heed::Need::lse;
        results.push_back(heed::attention(query, key, value, options));
        const auto& [output, lse] = std::pair{results.back().output.view(), results.back().lse.view()};
        gradients.push_back(heed::attention_backward({.query = query,
                                                      .key = key,
                                                      .value = value,
                                                      .output = output,
                                                      .lse = lse,
                                                      .grad_output = grad_output},
                                                     options));
      }
      EXPECT_TRUE(heed::test::same_bits(results[0].output, results[1].output)) << target;
      EXPECT_TRUE(heed::test::same_bits(gradients[0].query, gradients[1].query)) << target;
      EXPECT_TRUE(heed::test::same_bits(gradients[0].key, gradients[1].key)) << target;
      EXPECT_TRUE(heed::test::same_bits(gradients[0].value, gradients[1].value)) << target;
    }
  }
}

TEST(ScoreModCalls, MayCallAttentionInside) { expect_attention_inside_changes_nothing(150); }
TEST(ScoreModCalls, OfFewRowsMayCallAttentionInside) { expect_attention_inside_changes_nothing(12); }

// A key that the function forbids does not leak, whatever it contains.
TEST(ScoreModCalls, ThatForbidAKeyDoNotReadIt) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor query = Tensor::from<float>({1, 1}, {2, 1});
  Tensor key = Tensor::from<float>({1, 1, 1}, {3, 1}), value = Tensor::from<float>({1, 2, 3}, {3, 1});
  key.at<float>(2, 0) = value.at<float>(2, 0) = static_cast<float>(nan);
  for (const Kernel kernel : {Kernel::reference, Kernel::fused}) {
    const auto result = heed::attention(
        query, key, value, {.score_mod = ScoreMod::expression("where(j < 2, s, -inf)"), .kernel = kernel});
    EXPECT_FLOAT_EQ(result.output.at<float>(0, 0), 1.5F);
    EXPECT_FLOAT_EQ(result.output.at<float>(1, 0), 1.5F);
  }
}

}  // namespace
