// Compares random calls with the definitions: see checked_call.hpp.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>

#include "checked_call.hpp"
#include "expect_tight.hpp"
#include "support.hpp"

namespace {

using heed::Kernel;
using heed::test::RandomCall;

constexpr std::uint64_t kSeed = 20240607;
constexpr std::uint64_t kCalls = 4000;

TEST(AttentionProperty, RandomCallsAgreeWithTheDefinitions) {
  heed::test::RowTally tally;
  for (std::uint64_t index = 0; index < heed::test::share_of(kCalls); ++index) {
    auto [call, naive] = heed::test::checked_call(kSeed, index);
    call.options.kernel = Kernel::reference;
    const auto result = heed::attention(call.query, call.key, call.value, call.options);
    ASSERT_EQ(result.kernel, Kernel::reference);
    const std::string failure = heed::test::compare_results(result, call.options, naive, {}, tally);
    ASSERT_EQ(failure, "") << describe(call);
  }
  heed::test::expect_tight(tally);
}

// The generator must reach each of these options in at least one call of a hundred.
TEST(AttentionProperty, RandomCallsReachEveryOption) {
  std::map<std::string, int> seen;
  for (std::uint64_t index = 0; index < kCalls; ++index) {
    const RandomCall call = heed::test::random_call(kSeed, index);
    const heed::AttentionOptions& o = call.options;
    const auto count = [&](const char* what, bool yes) { seen[what] += yes ? 1 : 0; };
    const auto strides = [&](auto holds) {
      bool any = false;
      for (const auto& view : {call.query, call.key, call.value})
        for (int axis = 0; axis < view.rank(); ++axis)
          any |= view.shape()[axis] > 1 && holds(view.strides()[axis]);
      return any;
    };
    count("stride 0", strides([](std::int64_t stride) { return stride == 0; }));
    count("negative stride", strides([](std::int64_t stride) { return stride < 0; }));
    count("no query", call.query.size(-2) == 0);
    count("no key", call.key.size(-2) == 0);
    count("grouped", call.query.rank() > 2 && call.query.size(-3) != call.key.size(-3));
    count("rank 2", call.query.rank() == 2);
    count("rank 3", call.query.rank() == 3);
    count("D != Dv", call.key.size(-1) != call.value.size(-1));
    count("causal", o.causal);
    count("bottom right", o.align == heed::Align::bottom_right && (o.causal || o.window.left >= 0));
    count("negative offset", o.query_offset.value_or(0) < 0);
    count("window", o.window.left >= 0 && o.window.right >= 0);
    count("mask", o.mask.has_value());
    count("bias", o.bias.has_value());
    count("softcap", o.softcap > 0);
    count("alibi", o.alibi_slopes.has_value());
    count("sinks", o.sinks.has_value());
    count("kv_lengths", o.kv_lengths.has_value());
    count("segments", o.query_segments.has_value());
    count("dropout", o.dropout.probability > 0);
    count("top_k", o.top_k > 0);
    count("received_last", o.received_last > 0);
    count("map", o.map.rows > 0);
    count(heed::test::kFamilyNames[static_cast<std::size_t>(call.family)], true);
    count(std::string(heed::name_of(call.query.dtype())).c_str(), true);
  }
  for (const auto& [what, times] : seen) EXPECT_GE(times, static_cast<int>(kCalls / 100)) << what;
}

}  // namespace
