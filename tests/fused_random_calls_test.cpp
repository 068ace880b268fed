// Compares the fused kernel with the definitions on every target of this machine. Random calls together take
// every path.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>

#include "attention_support.hpp"
#include "checked_call.hpp"
#include "each_target.hpp"
#include "expect_tight.hpp"
#include "fused_calls.hpp"
#include "fused_rounding.hpp"
#include "heed/attention/attention.hpp"
#include "path_watch.hpp"
#include "support.hpp"

namespace {

using heed::Kernel;
using heed::test::decoding_calls;
using heed::test::document_calls;
using heed::test::EachTarget;
using heed::test::extreme_calls;
using heed::test::long_calls;
using heed::test::long_document_calls;
using heed::test::Path;
using heed::test::poisoned_decoding_calls;
using heed::test::received_calls;
using heed::test::small_calls;
using heed::test::span_calls;
using heed::test::tile_calls;
using heed::test::uncached_calls;
using heed::test::wide_calls;

constexpr std::uint64_t kSeed = 20240611;

struct Kind {
  heed::test::CallLimits limits;
  std::uint64_t count;
};

// The outcome of random calls on one target.
struct Outcome {
  heed::test::PathWatch paths;
  heed::test::RowTally tally;
};

void compare(const heed::test::CheckedCall& checked, const std::string& target, Outcome& outcome) {
  const auto& [call, naive] = checked;
  heed::set_target(target);
  outcome.paths.start_call();
  const auto result = heed::attention(call.query, call.key, call.value, call.options);
  ASSERT_EQ(result.kernel, Kernel::fused);
  ASSERT_EQ(result.isa, target);
  ASSERT_EQ(outcome.paths.taken_now(Path::fallback), result.recomputed_rows) << describe(call);
  const std::string failure = heed::test::compare_results(
      result, call.options, naive, heed::test::fused_rounding(call.query.dtype(), call.options, target),
      outcome.tally, [&](auto b, auto h, auto i) { return outcome.paths.fell_back(b, h, i); });
  ASSERT_EQ(failure, "") << describe(call);
  outcome.paths.end_call();
}

void run_calls(const Kind& kind, const EachTarget& targets, std::map<std::string, Outcome>& outcomes) {
  for (std::uint64_t index = 0; index < heed::test::share_of(kind.count); ++index) {
    heed::test::CheckedCall checked = heed::test::checked_call(kSeed, index, kind.limits);
    checked.call.options.kernel = Kernel::fused;
    checked.call.options.threads = index % 10 == 0 ? 1 : 2;
    for (const std::string& target : targets.available()) {
      if (!targets.takes(target, index, 6)) continue;
      SCOPED_TRACE(target);
      compare(checked, target, outcomes[target]);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// A single test, so that the paths of all calls can be counted.
TEST(FusedRandomCalls, AgreeWithTheDefinitionsAndTakeEveryPathOfEachTarget) {
  const EachTarget targets;
  std::map<std::string, Outcome> outcomes;
  for (const Kind& kind :
       {Kind{small_calls(), 2000}, Kind{extreme_calls(), 1000}, Kind{tile_calls(), 100},
        Kind{long_calls(), 8}, Kind{wide_calls(), 40}, Kind{decoding_calls(), 480},
        Kind{poisoned_decoding_calls(), 100}, Kind{span_calls(), 500}, Kind{document_calls(), 60},
        Kind{long_document_calls(), 60}, Kind{uncached_calls(), 20}, Kind{received_calls(), 90}}) {
    run_calls(kind, targets, outcomes);
    if (HasFatalFailure()) return;
  }
  for (const auto& [target, outcome] : outcomes) {
    SCOPED_TRACE(target);
    outcome.paths.expect_each_taken(Path::decode, Path::fallback, target, targets.least_paths(target));
    heed::test::expect_tight(outcome.tally, 0.95);
  }
}

TEST(FusedRandomCalls, RanOnEveryTargetOfThisBuild) {
  if (const EachTarget targets; !targets.missing().empty())
    GTEST_SKIP() << "not on this processor: " << targets.missing();
}

// The tile instructions and their emulation must give the same bits in whole calls.
void expect_the_same_bits(const std::string& target, heed::DType dtype) {
  const EachTarget targets;
  for (const std::string& name : {target, target + "_emulated"})
    if (!targets.has(name)) GTEST_SKIP() << "not on this processor, or not built: " << name;
  std::uint64_t compared = 0;
  for (const heed::test::CallLimits& kind : {small_calls(), tile_calls(), document_calls(), decoding_calls()})
    for (std::uint64_t index = 0; index < heed::test::share_of(300); ++index) {
      const heed::test::RandomCall call = heed::test::random_call(kSeed + 1, index, kind);
      // Other calls use units that differ between the two targets; so do raw scores.
      const auto heads = [](const auto& tensor) { return tensor.rank() > 2 ? tensor.size(-3) : 1; };
      const std::int64_t rows = heed::test::least_queries(call) * heads(call.query) / heads(call.key);
      const int least_rows = dtype == heed::DType::bf16 ? 13 : 128;
      if (call.query.dtype() != dtype || call.options.output_dtype.value_or(dtype) != dtype ||
          rows < least_rows)
        continue;
      heed::AttentionOptions options = call.options;
      options.kernel = Kernel::fused;
      options.need = static_cast<heed::Need>(static_cast<std::uint32_t>(options.need) &
                                             ~static_cast<std::uint32_t>(heed::Need::scores));
      heed::set_target(target);
      const auto tiles = heed::attention(call.query, call.key, call.value, options);
      heed::set_target(target + "_emulated");
      const auto emulated = heed::attention(call.query, call.key, call.value, options);
      ASSERT_TRUE(heed::test::same_bits(tiles, emulated)) << describe(call);
      ++compared;
    }
  EXPECT_GE(compared, heed::test::share_of(dtype == heed::DType::f16 ? 20 : 40));
}

TEST(FusedRandomCalls, AmxAndItsEmulationGiveTheSameBits) { expect_the_same_bits("amx", heed::DType::bf16); }

TEST(FusedRandomCalls, AmxAndItsEmulationGiveTheSameBitsInF32) {
  expect_the_same_bits("amx_f32", heed::DType::f32);
}

TEST(FusedRandomCalls, AmxAndItsEmulationGiveTheSameBitsInF16) {
  expect_the_same_bits("amx_f32", heed::DType::f16);
}

}  // namespace
