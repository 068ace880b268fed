// The fused kernel against the definitions, on the instruction set that HEED_ISA names (CTest runs this for
// each).
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "attention_support.hpp"
#include "checked_call.hpp"
#include "fused_calls.hpp"
#include "fused_rounding.hpp"
#include "support.hpp"

namespace {

using heed::DType;
using heed::Kernel;
using heed::Tensor;
using heed::test::decoding_calls;
using heed::test::small_calls;
using heed::test::tile_calls;
using heed::test::why_not_fused;

constexpr std::uint64_t kSeed = 20240611;

// Several chunks of keys, and tasks of more than one block of rows.
heed::test::CallLimits long_calls() {
  heed::test::CallLimits limits = small_calls();
  limits.batches = {1};
  limits.kv_heads = {1};
  limits.groups = {1, 2};
  limits.lengths = {384, 385, 500, 777};
  limits.dims = {16, 28, 64};
  return limits;
}

heed::test::CallLimits wide_calls() {
  heed::test::CallLimits limits = small_calls();
  limits.batches = {1};
  limits.kv_heads = {1};
  limits.lengths = {1, 13, 49};
  limits.dims = {128, 192, 255, 256, 512};
  return limits;
}

void run_calls(const heed::test::CallLimits& limits, std::uint64_t count) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  for (std::uint64_t index = 0; index < heed::test::share_of(count); ++index) {
    auto [call, naive] = heed::test::checked_call(kSeed, index, limits);
    call.options.kernel = Kernel::fused;
    const auto result = heed::attention(call.query, call.key, call.value, call.options);
    ASSERT_EQ(result.kernel, Kernel::fused);
    const std::string failure =
        heed::test::compare_results(result, call.options, naive,
                                    heed::test::fused_rounding(call.query.dtype(), call.options, result.isa));
    ASSERT_EQ(failure, "") << describe(call);
  }
}

TEST(Fused, SmallRandomCallsAgreeWithTheDefinitions) { run_calls(small_calls(), 2000); }
TEST(Fused, RandomCallsOfTileSizesAgreeWithTheDefinitions) { run_calls(tile_calls(), 60); }
TEST(Fused, LongRandomCallsAgreeWithTheDefinitions) { run_calls(long_calls(), 4); }
TEST(Fused, RandomCallsWithWideHeadsAgreeWithTheDefinitions) { run_calls(wide_calls(), 40); }

TEST(Fused, RandomDecodingCallsAgreeWithTheDefinitions) { run_calls(decoding_calls(), 100); }

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
