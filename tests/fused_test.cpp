// The fused kernel against the definitions, on the instruction set that HEED_ISA names (CTest runs this for
// each).
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "attention_support.hpp"
#include "checked_call.hpp"
#include "expect_tight.hpp"
#include "fused_calls.hpp"
#include "fused_rounding.hpp"
#include "path_watch.hpp"
#include "support.hpp"

namespace {

using heed::DType;
using heed::Kernel;
using heed::Tensor;
using heed::test::decoding_calls;
using heed::test::document_calls;
using heed::test::extreme_calls;
using heed::test::long_calls;
using heed::test::long_document_calls;
using heed::test::Path;
using heed::test::small_calls;
using heed::test::tile_calls;
using heed::test::uncached_calls;
using heed::test::why_not_fused;
using heed::test::wide_calls;

constexpr std::uint64_t kSeed = 20240611;

struct Kind {
  heed::test::CallLimits limits;
  std::uint64_t count;
};

// What random calls came to.
struct Outcome {
  heed::test::PathWatch paths;
  heed::test::RowTally tally;
  std::string isa;
};

void run_calls(const Kind& kind, Outcome& outcome) {
  for (std::uint64_t index = 0; index < heed::test::share_of(kind.count); ++index) {
    auto [call, naive] = heed::test::checked_call(kSeed, index, kind.limits);
    call.options.kernel = Kernel::fused;
    outcome.paths.start_call();
    const auto result = heed::attention(call.query, call.key, call.value, call.options);
    ASSERT_EQ(result.kernel, Kernel::fused);
    outcome.isa = result.isa;
    ASSERT_EQ(outcome.paths.taken_now(Path::fallback), result.recomputed_rows) << describe(call);
    const std::string failure = heed::test::compare_results(
        result, call.options, naive, heed::test::fused_rounding(call.query.dtype(), call.options, result.isa),
        outcome.tally, [&](auto b, auto h, auto i) { return outcome.paths.fell_back(b, h, i); });
    ASSERT_EQ(failure, "") << describe(call);
    outcome.paths.end_call();
  }
}

// In one test, so that what they reach together can be counted.
TEST(Fused, RandomCallsAgreeWithTheDefinitionsAndTakeEveryPath) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  Outcome outcome;
  for (const Kind& kind :
       {Kind{small_calls(), 2000}, Kind{extreme_calls(), 1000}, Kind{tile_calls(), 100},
        Kind{long_calls(), 8}, Kind{wide_calls(), 40}, Kind{decoding_calls(), 300},
        Kind{document_calls(), 60}, Kind{long_document_calls(), 60}, Kind{uncached_calls(), 20}}) {
    run_calls(kind, outcome);
    if (HasFatalFailure()) return;
  }
  outcome.paths.expect_each_taken(Path::decode, Path::fallback, outcome.isa);
  heed::test::expect_tight(outcome.tally, 0.95);
}

TEST(Fused, WithoutBatchesHeadsQueriesOrKeysLeavesNothingUndone) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  const auto output = [](const heed::Dims& q, const heed::Dims& k) {
    const Tensor keys(k);
    return heed::attention(Tensor(q), keys, keys, {.need = heed::Need::received, .kernel = Kernel::fused})
        .output;
  };
  EXPECT_EQ(output({0, 2, 3, 4}, {0, 2, 5, 4}).shape(), (heed::Dims{0, 2, 3, 4}));
  EXPECT_EQ(output({2, 0, 3, 4}, {2, 0, 5, 4}).shape(), (heed::Dims{2, 0, 3, 4}));
  EXPECT_EQ(output({2, 0, 3, 4}, {2, 1, 5, 4}).shape(), (heed::Dims{2, 0, 3, 4}));
  EXPECT_EQ(output({1, 2, 0, 4}, {1, 2, 5, 4}).shape(), (heed::Dims{1, 2, 0, 4}));
  const Tensor no_keys = output({1, 2, 3, 4}, {1, 2, 0, 4});
  for (float x : no_keys.values<float>()) EXPECT_EQ(x, 0);
}

TEST(Fused, RunsOnTheInstructionSetThatIsForced) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  const Tensor one({1, 1});
  const char* forced = std::getenv("HEED_ISA");
  const auto result = heed::attention(one, one, one, {.kernel = Kernel::fused});
  if (forced != nullptr) {
    EXPECT_EQ(result.isa, forced);
  }
}

}  // namespace
