// The fused kernel against the definitions, on the instruction set that HEED_ISA names (CTest runs this for
// each).
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "checked_call.hpp"
#include "fused_rounding.hpp"
#include "support.hpp"

namespace {

using heed::DType;
using heed::Kernel;
using heed::Tensor;

constexpr std::uint64_t kSeed = 20240611;

heed::test::CallLimits small_calls() {
  heed::test::CallLimits limits;
  limits.dtypes = {DType::f32, DType::f32, DType::f16, DType::bf16};
  return limits;
}

// Sizes around those of the tiles: 4 and 12 rows, panels of 12, 24 and 48 keys, chunks of 192.
heed::test::CallLimits tile_calls() {
  heed::test::CallLimits limits = small_calls();
  limits.batches = {1, 1, 2};
  limits.kv_heads = {1, 1, 2};
  limits.lengths = {1, 3, 11, 12, 13, 24, 25, 47, 48, 49, 95, 97, 128, 191, 192, 193, 200};
  limits.dims = {1, 3, 15, 16, 17, 24, 28, 31, 48, 59, 64, 80, 111};
  return limits;
}

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

// Few rows against many keys, whole vectors wide: the kernel then reads keys and values in place.
heed::test::CallLimits decoding_calls() {
  heed::test::CallLimits limits = small_calls();
  limits.groups = {1, 2, 4};
  limits.batches = {1, 1, 2};
  limits.kv_heads = {1, 1, 2};
  limits.lengths = {1, 1, 2, 3, 5, 49, 100};
  limits.dims = {16, 32, 64, 80};
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

// Whether this machine has what HEED_ISA names.
bool is_available() {
  const Tensor one({1, 1});
  return heed::test::message_of([&] { (void)heed::attention(one, one, one, {.kernel = Kernel::fused}); }) ==
         "no error";
}

void run_calls(const heed::test::CallLimits& limits, std::uint64_t count) {
  if (!is_available()) GTEST_SKIP() << "this machine does not have " << std::getenv("HEED_ISA");
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
  if (!is_available()) GTEST_SKIP() << "this machine does not have " << std::getenv("HEED_ISA");
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
  if (!is_available()) GTEST_SKIP() << "this machine does not have " << std::getenv("HEED_ISA");
  const Tensor one({1, 1});
  const char* forced = std::getenv("HEED_ISA");
  const auto result = heed::attention(one, one, one, {.kernel = Kernel::fused});
  if (forced != nullptr) {
    EXPECT_EQ(result.isa, forced);
  }
}

}  // namespace
