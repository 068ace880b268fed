#include "attention/problem/dropout.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "attention/problem/philox.hpp"

namespace {

using heed::detail::HeadDropout;
using heed::detail::philox;
using heed::detail::PhiloxBlock;
using heed::detail::PlacedDropout;

// The known answers that Random123 publishes (tests/kat_vectors, "philox4x32 10").
TEST(Philox, GivesTheKnownAnswersOfRandom123) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// The mapping in the header's comment, written out. Other kernels and later versions must give the same
// masks.
TEST(Dropout, TakesFourKeysFromOneBlockOfTheHeadsOwnKey) {
  const PlacedDropout dropout{{0.25, 0x0123456789abcdef, 0xfedcba9876543210}};
  const HeadDropout head(dropout, 3, 5);
  const PhiloxBlock key = philox({0x76543210, 0xfedcba98, 3, 5}, {0x89abcdef, 0x01234567});
  for (std::int64_t i : {std::int64_t{0}, std::int64_t{7}, (std::int64_t{1} << 32) + 1})
    for (std::int64_t j = 0; j < 32; ++j) {
      const PhiloxBlock block = philox({static_cast<std::uint32_t>(j / 4), 0, static_cast<std::uint32_t>(i),
                                        static_cast<std::uint32_t>(i >> 32)},
                                       {key[0], key[1]});
      EXPECT_EQ(head.drops(i, j), block[static_cast<std::size_t>(j % 4)] < (1u << 30)) << i << " " << j;
    }
}

TEST(Dropout, DropsTheShareAskedForInEveryDirection) {
  // 40,000 draws of probability 0.3 have a standard deviation of 92; five of them are allowed.
  const double tolerance = 5 * std::sqrt(40000 * 0.3 * 0.7);
  const auto share = [&](auto drops) {
    int dropped = 0;
    for (int n = 0; n < 40000; ++n) dropped += drops(n) ? 1 : 0;
    return std::abs(dropped - 12000.0);
  };
  const HeadDropout head({{0.3, 11, 0}}, 0, 0);
  EXPECT_LE(share([&](int n) { return head.drops(5, n); }), tolerance);
  EXPECT_LE(share([&](int n) { return head.drops(n, 5); }), tolerance);
  EXPECT_LE(share([&](int n) { return HeadDropout({{0.3, 11, 0}}, 0, n).drops(1, 2); }), tolerance);
  EXPECT_LE(share([&](int n) { return HeadDropout({{0.3, 11, 0}}, n, 0).drops(1, 2); }), tolerance);
  const auto step = [](int n) { return static_cast<std::uint64_t>(n); };
  EXPECT_LE(share([&](int n) { return HeadDropout({{0.3, step(n), 0}}, 0, 0).drops(1, 2); }), tolerance);
  EXPECT_LE(share([&](int n) { return HeadDropout({{0.3, 11, step(n)}}, 0, 0).drops(1, 2); }), tolerance);
}

TEST(Dropout, OfNothingDropsNothingAndOfNearlyAllNearlyAll) {
  const HeadDropout none({{0, 1, 2}}, 0, 0);
  const HeadDropout nearly({{std::nextafter(1.0, 0.0), 1, 2}}, 0, 0);
  for (std::int64_t j = 0; j < 1000; ++j) {
    EXPECT_FALSE(none.drops(0, j));
    EXPECT_TRUE(nearly.drops(0, j));
  }
  EXPECT_EQ(none.keep_scale(), 1);
}

}  // namespace
