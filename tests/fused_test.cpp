// The fused kernel at extreme shapes, on the instruction set in HEED_ISA (CTest runs this for each).
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "attention_support.hpp"
#include "path_watch.hpp"

namespace {

using heed::DType;
using heed::Kernel;
using heed::Tensor;
using heed::test::Path;
using heed::test::why_not_fused;

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

// If a map's column has at least a vector of keys, its bins are summed by vectors, otherwise key by key.
TEST(Fused, TheColumnsOfAMapAreWideFromAVectorOfKeysOn) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  const auto takes = [&](std::int64_t keys, Path path) {
    const Tensor key({1, 1, keys, 8}), query({1, 1, 20, 8});
    heed::test::PathWatch paths;
    paths.start_call();
    (void)heed::attention(query, key, key, {.map = {3, 5}, .kernel = Kernel::fused});
    return paths.taken_now(path) > 0;
  };
  const Tensor one({1, 1});
  const std::string_view isa = heed::attention(one, one, one, {.kernel = Kernel::fused}).isa;
  const std::int64_t lanes = isa.starts_with("avx512") || isa == "amx" || isa.starts_with("amx_f32") ? 16
                             : isa == "avx2"                                                         ? 8
                                                                                                     : 4;
  EXPECT_TRUE(takes(5 * lanes, Path::map_wide));
  EXPECT_FALSE(takes(5 * lanes, Path::map_narrow));
  EXPECT_TRUE(takes(5 * lanes - 1, Path::map_narrow));
  EXPECT_FALSE(takes(5 * lanes - 1, Path::map_wide));
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
