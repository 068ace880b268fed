#include "heed/attention/sharding.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "support.hpp"

namespace {

using heed::DType;
using heed::PositionRange;
using heed::Sharding;
using heed::Tensor;
using heed::TensorView;
using heed::test::message_of;
using heed::test::share_of;

// Compares everything that a sharding returns with a plain array of each position's rank.
void expect_is(const Sharding& sharding, const std::vector<int>& rank_of, int ranks) {
  ASSERT_EQ(sharding.ranks(), ranks);
  ASSERT_EQ(sharding.length(), static_cast<std::int64_t>(rank_of.size()));
  std::vector<std::vector<std::int64_t>> positions(static_cast<std::size_t>(ranks));
  for (std::size_t p = 0; p < rank_of.size(); ++p) {
    const auto position = static_cast<std::int64_t>(p);
    auto& of_rank = positions[static_cast<std::size_t>(rank_of[p])];
    ASSERT_EQ(sharding.rank_of(position), rank_of[p]) << p;
    ASSERT_EQ(sharding.row_of(position), static_cast<std::int64_t>(of_rank.size())) << p;
    of_rank.push_back(position);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    const auto& expected = positions[static_cast<std::size_t>(rank)];
    ASSERT_EQ(sharding.rows(rank), static_cast<std::int64_t>(expected.size())) << rank;
    for (std::size_t row = 0; row < expected.size(); ++row)
      ASSERT_EQ(sharding.position(rank, static_cast<std::int64_t>(row)), expected[row]) << rank;
    std::vector<std::int64_t> listed;
    std::int64_t end_before = -1;
    for (const PositionRange& range : sharding.ranges(rank)) {
      ASSERT_LT(range.begin, range.end);
      ASSERT_GT(range.begin, end_before);  // otherwise the ranges would touch
      for (std::int64_t p = range.begin; p < range.end; ++p) listed.push_back(p);
      end_before = range.end;
    }
    ASSERT_EQ(listed, expected);
  }
}

std::vector<int> random_map(std::mt19937_64& random, int ranks) {
  std::vector<int> rank_of;
  const std::size_t length = random() % 200;
  const std::size_t longest = 1 + random() % 40;
  while (rank_of.size() < length)
    rank_of.insert(rank_of.end(), std::min(1 + random() % longest, length - rank_of.size()),
                   static_cast<int>(random() % static_cast<std::uint64_t>(ranks)));
  return rank_of;
}

// The ranges of a map, cut further, in any order, and with empty ranges between them.
std::vector<std::vector<PositionRange>> shuffled_ranges(const std::vector<int>& rank_of, int ranks,
                                                        std::mt19937_64& random) {
  std::vector<std::vector<PositionRange>> ranges(static_cast<std::size_t>(ranks));
  for (std::size_t begin = 0; begin < rank_of.size();) {
    std::size_t end = begin + 1;
    while (end < rank_of.size() && rank_of[end] == rank_of[begin] && random() % 8 != 0) ++end;
    auto& of_rank = ranges[static_cast<std::size_t>(rank_of[begin])];
    of_rank.push_back({static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end)});
    if (random() % 4 == 0) of_rank.push_back({5, 5});
    begin = end;
  }
  for (auto& of_rank : ranges) std::shuffle(of_rank.begin(), of_rank.end(), random);
  return ranges;
}

TEST(Sharding, SaysOfEveryPositionWhatAPlainArrayOfRanksSays) {
  for (std::uint64_t seed = 0; seed < share_of(2000); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const int ranks = 1 + static_cast<int>(random() % 9);
    const std::vector<int> rank_of = random_map(random, ranks);
    const Sharding from_ranks = Sharding::from_ranks(rank_of, ranks);
    ASSERT_NO_FATAL_FAILURE(expect_is(from_ranks, rank_of, ranks));
    ASSERT_EQ(Sharding::from_ranges(shuffled_ranges(rank_of, ranks, random)), from_ranks);
  }
}

TEST(Sharding, JoinsWhatItCut) {
  for (std::uint64_t seed = 0; seed < share_of(300); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const int ranks = 1 + static_cast<int>(random() % 5);
    const std::vector<int> rank_of = random_map(random, ranks);
    const Sharding sharding = Sharding::from_ranks(rank_of, ranks);
    const auto length = static_cast<std::int64_t>(rank_of.size());
    const int axis = static_cast<int>(random() % 3);
    heed::Dims shape{2, 3, 4};
    shape[axis] = length;
    Tensor whole(shape, DType::i64);
    std::int64_t next = 0;
    for (std::int64_t& value : whole.values<std::int64_t>()) value = next++;
    std::vector<Tensor> shards;
    for (int rank = 0; rank < ranks; ++rank) {
      shards.push_back(sharding.shard(whole, axis - 3, rank));
      ASSERT_EQ(shards.back().size(axis), sharding.rows(rank));
      for (std::int64_t row = 0; row < sharding.rows(rank); ++row) {
        const TensorView one = shards.back().view().select(axis, row);
        const TensorView expected = whole.view().select(axis, sharding.position(rank, row));
        for (std::int64_t i = 0; i < one.size(0); ++i)
          for (std::int64_t j = 0; j < one.size(1); ++j)
            ASSERT_EQ(one.at<std::int64_t>(i, j), expected.at<std::int64_t>(i, j));
      }
    }
    const Tensor joined = sharding.join(std::vector<TensorView>(shards.begin(), shards.end()), axis);
    ASSERT_EQ(joined.shape(), whole.shape());
    ASSERT_TRUE(std::ranges::equal(joined.values<std::int64_t>(), whole.values<std::int64_t>()));
  }
}

TEST(Sharding, LayoutsDealPositionsAsTheyAreDefined) {
  for (const std::int64_t length : {0, 1, 2, 5, 16, 97, 1009})
    for (const int ranks : {1, 2, 3, 4, 5, 8, 1100}) {
      std::vector<int> contiguous, striped;
      std::vector<std::int64_t> zigzag_rows(static_cast<std::size_t>(ranks));
      for (std::int64_t p = 0; p < length; ++p) striped.push_back(static_cast<int>(p / 7 % ranks));
      for (int r = 0; r < ranks; ++r)
        contiguous.insert(contiguous.end(), static_cast<std::size_t>((length + ranks - 1 - r) / ranks), r);
      expect_is(Sharding::contiguous(length, ranks), contiguous, ranks);
      expect_is(Sharding::striped(length, ranks, 7), striped, ranks);

      const Sharding zigzag = Sharding::zigzag(length, ranks);
      const Sharding chunks = Sharding::contiguous(length, 2 * ranks);
      std::vector<int> folded;
      for (std::int64_t p = 0; p < length; ++p)
        folded.push_back(std::min(chunks.rank_of(p), 2 * ranks - 1 - chunks.rank_of(p)));
      expect_is(zigzag, folded, ranks);
      const std::int64_t least = length / ranks;
      for (int r = 0; r < ranks; ++r)
        EXPECT_TRUE(zigzag.rows(r) == least || zigzag.rows(r) == least + 1) << length << " on " << ranks;
    }
}

TEST(Sharding, IsOfAnyLengthInLittleMemory) {
  const std::int64_t length = std::numeric_limits<std::int64_t>::max();
  const Sharding sharding = Sharding::zigzag(length, 4096);
  EXPECT_EQ(sharding.length(), length);
  EXPECT_EQ(sharding.rank_of(length - 1), 0);
  EXPECT_EQ(sharding.row_of(length - 1), sharding.rows(0) - 1);
  EXPECT_EQ(sharding.position(0, sharding.rows(0) - 1), length - 1);
  EXPECT_EQ(sharding.ranges(0).size(), 2U);
  EXPECT_EQ(sharding.ranges(4095).size(), 1U);  // its two middle ranges touch
}

TEST(Sharding, SaysWhatIsWrongWithAMap) {
  using Ranges = std::vector<std::vector<PositionRange>>;
  const auto of_ranges = [](const Ranges& ranges) {
    return message_of([&] { (void)Sharding::from_ranges(ranges); });
  };
  EXPECT_EQ(message_of([] { (void)Sharding::zigzag(5, 0); }), "ranks is 0; at least 1 is expected");
  EXPECT_EQ(message_of([] { (void)Sharding::from_ranks({}, -3); }), "ranks is -3; at least 1 is expected");
  for (const auto& make : {Sharding::contiguous, Sharding::zigzag})
    EXPECT_EQ(message_of([&] { (void)make(5, std::numeric_limits<int>::max()); }),
              "ranks is 2147483647; at most 4194304 is expected");
  EXPECT_EQ(message_of([] { (void)Sharding::striped(5, (1 << 22) + 1); }),
            "ranks is 4194305; at most 4194304 is expected");
  EXPECT_EQ(message_of([] { (void)Sharding::striped(std::int64_t{1} << 40, 2, 1); }),
            "stripe is 1; at least 65537 is expected for a length of 1099511627776");
  EXPECT_EQ(message_of([] { (void)Sharding::contiguous(-1, 2); }), "length is -1; at least 0 is expected");
  EXPECT_EQ(message_of([] { (void)Sharding::striped(5, 2, 0); }), "stripe is 0; at least 1 is expected");
  EXPECT_EQ(of_ranges({}), "ranges is empty; ranges of at least 1 rank are expected");
  EXPECT_EQ(of_ranges({{{0, 4}}, {{-1, 2}}}), "ranges has [-1, 2) on rank 1; 0 <= begin <= end is expected");
  EXPECT_EQ(of_ranges({{{6, 4}}}), "ranges has [6, 4) on rank 0; 0 <= begin <= end is expected");
  EXPECT_EQ(of_ranges({{{0, 4}}, {{5, 7}}}),
            "position 4 is on no rank; each position on one rank is expected");
  EXPECT_EQ(of_ranges({{{0, 4}}, {{4, 7}}, {{2, 3}}}),
            "position 2 is on rank 0 and on rank 2; each position on one rank is expected");
  EXPECT_EQ(message_of([] {
              (void)Sharding::from_ranks(std::vector<int>{0, 1, 2}, 2);
            }),
            "rank_of_position has 2 for position 2; a rank of 0 to 1 is expected");
}

TEST(Sharding, SaysWhatIsWrongWithAQuestion) {
  const Sharding sharding = Sharding::contiguous(5, 2);
  EXPECT_EQ(message_of([&] { (void)sharding.rows(2); }), "rank is 2; a rank of 0 to 1 is expected");
  EXPECT_EQ(message_of([&] { (void)sharding.ranges(-1); }), "rank is -1; a rank of 0 to 1 is expected");
  EXPECT_EQ(message_of([&] { (void)sharding.rank_of(5); }),
            "position is 5; a position of a sequence of 5 is expected");
  EXPECT_EQ(message_of([&] { (void)sharding.row_of(-1); }),
            "position is -1; a position of a sequence of 5 is expected");
  EXPECT_EQ(message_of([&] { (void)sharding.position(1, 2); }),
            "row is 2; a row of the 2 rows of rank 1 is expected");
  const Tensor whole({4, 5}), three({4, 3}), two({4, 2}), doubles({4, 2}, DType::f64);
  EXPECT_EQ(message_of([&] { (void)sharding.shard(whole, 2, 0); }),
            "axis is 2; an axis of whole [4, 5] is expected");
  EXPECT_EQ(message_of([&] { (void)sharding.shard(whole, 0, 0); }),
            "whole [4, 5] has 4 positions on axis 0; 5 are expected");
  EXPECT_EQ(message_of([&] { (void)sharding.shard(whole, 1, 2); }),
            "rank is 2; a rank of 0 to 1 is expected");
  EXPECT_EQ(message_of([&] { (void)sharding.join(std::vector<TensorView>{three}, 1); }),
            "shards has 1 entry; one for each of 2 ranks is expected");
  EXPECT_EQ(message_of([&] {
              (void)sharding.join(std::vector<TensorView>{three, two}, -3);
            }),
            "axis is -3; an axis of shards [4, 3] is expected");
  EXPECT_EQ(message_of([&] {
              (void)sharding.join(std::vector<TensorView>{three, three}, 1);
            }),
            "the shard of rank 1 is f32 [4, 3]; f32 [4, 2] is expected");
  EXPECT_EQ(message_of([&] {
              (void)sharding.join(std::vector<TensorView>{three, doubles}, 1);
            }),
            "the shard of rank 1 is f64 [4, 2]; f32 [4, 2] is expected");
}

// The number of tiles of 48 rows of a rank by 192 keys that have an allowed pair under a causal mask.
std::int64_t causal_tiles(const Sharding& sharding, int rank) {
  std::int64_t tiles = 0;
  for (std::int64_t row = 0; row < sharding.rows(rank); row += 48) {
    const std::int64_t last = std::min(row + 48, sharding.rows(rank)) - 1;
    tiles += sharding.position(rank, last) / 192 + 1;
  }
  return tiles;
}

double imbalance(const Sharding& sharding) {
  std::vector<double> tiles;
  double sum = 0;
  for (int rank = 0; rank < sharding.ranks(); ++rank) {
    tiles.push_back(static_cast<double>(causal_tiles(sharding, rank)));
    sum += tiles.back();
  }
  return *std::max_element(tiles.begin(), tiles.end()) * static_cast<double>(tiles.size()) / sum - 1;
}

TEST(Shardings, ShareTheWorkUnderACausalMask) {
  EXPECT_LE(imbalance(Sharding::zigzag(65536, 8)), 0.05);
  EXPECT_LE(imbalance(Sharding::striped(65536, 8)), 0.05);
  EXPECT_GE(imbalance(Sharding::contiguous(65536, 8)), 0.8);  // the imbalance that the other layouts avoid
}

}  // namespace
