// Compares the fused kernel's gradients with the definitions on every target of this machine. Random calls
// together take every path.
#include <gtest/gtest.h>

#include <cstdint>
#include <iostream>
#include <map>
#include <string>

#include "attention_support.hpp"
#include "describe_call.hpp"
#include "each_target.hpp"
#include "expect_tight.hpp"
#include "fused_calls.hpp"
#include "gradient_errors.hpp"
#include "gradient_rounding.hpp"
#include "path_watch.hpp"
#include "support.hpp"

namespace {

using heed::AttentionGradients;
using heed::DType;
using heed::Kernel;
using heed::test::BackwardCall;
using heed::test::bare_gradient_calls;
using heed::test::document_calls;
using heed::test::EachTarget;
using heed::test::extreme_calls;
using heed::test::is_served_by_tiles;
using heed::test::long_gradient_calls;
using heed::test::matrix_gradient_calls;
using heed::test::Path;
using heed::test::small_calls;
using heed::test::threshold_calls;
using heed::test::tile_calls;

constexpr std::uint64_t kSeed = 20240811;

struct Kind {
  heed::test::CallLimits limits;
  std::uint64_t count;
};

// The outcome of random calls on one target.
struct Outcome {
  heed::test::PathWatch paths;
  heed::test::RowTally tally;
  // Counts calls with packed sequences on both sides of a size that chooses a path.
  std::uint64_t plain_beside_recomputed = 0, split_beside_undivided = 0;
};

void compare(const BackwardCall& made, const std::string& target, Outcome& outcome) {
  heed::set_target(target);
  outcome.paths.start_call();
  const AttentionGradients gradients = heed::attention_backward(made.inputs, made.call.options, made.request);
  ASSERT_EQ(gradients.kernel, Kernel::fused);
  ASSERT_EQ(gradients.isa, target);
  ASSERT_EQ(outcome.paths.taken_now(Path::backward_fallback), gradients.recomputed_rows)
      << describe(made.call);
  const std::string failure = heed::test::compare_gradients(
      made, gradients, heed::test::gradient_rounding(made, target), outcome.tally,
      [&](auto b, auto h, auto i) { return outcome.paths.gradients_fell_back(b, h, i); });
  ASSERT_EQ(failure, "") << describe(made.call);
  const auto both = [&](Path a, Path b) {
    return outcome.paths.taken_now(a) > 0 && outcome.paths.taken_now(b) > 0 ? 1U : 0U;
  };
  outcome.plain_beside_recomputed +=
      both(Path::backward_sequence_plain, Path::backward_sequence_recomputed_lse);
  outcome.split_beside_undivided +=
      both(Path::backward_sequence_split_keys, Path::backward_sequence_undivided);
  outcome.paths.end_call();
}

void run_calls(const Kind& kind, const EachTarget& targets, std::map<std::string, Outcome>& outcomes) {
  for (std::uint64_t index = 0; index < heed::test::share_of(kind.count); ++index) {
    BackwardCall made = heed::test::backward_call(kSeed, index, kind.limits);
    made.inputs.grad_weights.reset();
    made.call.options.kernel = Kernel::fused;
    for (const std::string& target : targets.available()) {
      if (!targets.takes(target, index, 4)) continue;
      SCOPED_TRACE(target);
      compare(made, target, outcomes[target]);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// A single test, so that the paths of all calls can be counted.
TEST(FusedRandomGradients, AgreeWithTheDefinitionsAndTakeEveryPathOfEachTarget) {
  const EachTarget targets;
  std::map<std::string, Outcome> outcomes;
  for (const Kind& kind :
       {Kind{small_calls(), 3000}, Kind{extreme_calls(), 300}, Kind{tile_calls(), 60},
        Kind{long_gradient_calls(), 8}, Kind{matrix_gradient_calls(), 100}, Kind{bare_gradient_calls(), 80},
        Kind{threshold_calls(), 150}, Kind{document_calls(), 450}}) {
    run_calls(kind, targets, outcomes);
    if (HasFatalFailure()) return;
  }
  for (const auto& [target, outcome] : outcomes) {
    SCOPED_TRACE(target);
    const std::uint64_t times = targets.least_paths(target);
    outcome.paths.expect_each_taken(Path::backward_plain, Path::backward_fallback, target, times);
    const std::uint64_t least = heed::test::share_of(times);
    std::cout << "calls with sequences plain beside recomputed: " << outcome.plain_beside_recomputed
              << ", split beside undivided: " << outcome.split_beside_undivided << "\n";
    EXPECT_GE(outcome.plain_beside_recomputed, least);
    EXPECT_GE(outcome.split_beside_undivided, least);
    heed::test::expect_tight(outcome.tally, 0.98);
  }
}

// The tile instructions and their emulation must give the same bits in whole calls.
void expect_the_same_bits(const std::string& target, DType dtype) {
  const EachTarget targets;
  for (const std::string& name : {target, target + "_emulated"})
    if (!targets.has(name)) GTEST_SKIP() << "not on this processor, or not built: " << name;
  const int least_rows = dtype == DType::bf16 ? 13 : 128;
  std::uint64_t compared = 0;
  heed::test::PathWatch paths;
  for (const heed::test::CallLimits& kind : {small_calls(), tile_calls(), matrix_gradient_calls()})
    for (std::uint64_t index = 0; index < heed::test::share_of(100); ++index) {
      heed::test::CallLimits limits = kind;
      limits.dtypes = {dtype};
      limits.poison = false;
      BackwardCall made = heed::test::backward_call(kSeed + 1, index, limits);
      made.inputs.grad_weights.reset();
      made.call.options.kernel = Kernel::fused;
      if (!is_served_by_tiles(made, target, dtype) || heed::test::least_queries(made.call) < least_rows)
        continue;
      heed::set_target(target);
      paths.start_call();
      const AttentionGradients tiles = heed::attention_backward(made.inputs, made.call.options, made.request);
      if (paths.fell_back_at_all()) continue;
      heed::set_target(target + "_emulated");
      const AttentionGradients emulated =
          heed::attention_backward(made.inputs, made.call.options, made.request);
      for (const auto member :
           {&AttentionGradients::query, &AttentionGradients::key, &AttentionGradients::value,
            &AttentionGradients::bias, &AttentionGradients::sinks})
        ASSERT_TRUE(heed::test::same_bits(tiles.*member, emulated.*member)) << describe(made.call);
      ++compared;
    }
  EXPECT_GE(compared, heed::test::share_of(dtype == DType::bf16 ? 40 : 20));
}

TEST(FusedRandomGradients, AmxAndItsEmulationGiveTheSameBits) { expect_the_same_bits("amx", DType::bf16); }

TEST(FusedRandomGradients, AmxAndItsEmulationGiveTheSameBitsInF32) {
  expect_the_same_bits("amx_f32", DType::f32);
}

TEST(FusedRandomGradients, AmxAndItsEmulationGiveTheSameBitsInF16) {
  expect_the_same_bits("amx_f32", DType::f16);
}

}  // namespace
