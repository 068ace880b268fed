// Masks in O(L) memory by themselves: the pairs that each form and each named mask allows, errors and their
// messages, and memory. (sparse_mask_calls_test tests calls with masks.)
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "heed/attention/attention.hpp"
#include "heed/attention/mask_mod.hpp"
#include "heed/attention/masks.hpp"
#include "heed/error.hpp"
#include "random_mask.hpp"
#include "support.hpp"

namespace {

using heed::DType;
using heed::MaskSlice;
using heed::SliceKind;
using heed::SparseMask;
using heed::Tensor;

// A mask as rows of ones and zeros with slashes between: "1000/1100".
std::string pattern_of(const SparseMask& mask) {
  const Tensor dense = mask.dense();
  std::string text;
  for (std::int64_t i = 0; i < dense.size(2); ++i) {
    if (i > 0) text += '/';
    for (std::int64_t j = 0; j < dense.size(3); ++j) text += dense.at<bool>(0, 0, i, j) ? '1' : '0';
  }
  return text;
}

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const heed::Error& error) {
    EXPECT_EQ(error.code(), heed::ErrorCode::invalid_argument);
    return error.what();
  }
  return "no error";
}

Tensor numbers(std::initializer_list<std::int64_t> values, const heed::Dims& shape) {
  return Tensor::from<std::int64_t>(values, shape);
}

TEST(SparseMask, OfRowsHasTheUnionOfTheirIntervals) {
  EXPECT_EQ(pattern_of(SparseMask::row_intervals(numbers({0, 1, 2, 4, 1, 3, 2, 2}, {2, 2, 2}), 4)),
            "1011/0110");
}

TEST(SparseMask, OfColumnsForbidsRowsFromANumberOnOrBetweenTwo) {
  EXPECT_EQ(pattern_of(SparseMask::column_intervals(numbers({1, 3}, {2, 1}), 3)), "11/01/01");
  EXPECT_EQ(pattern_of(SparseMask::column_intervals(numbers({0, 1, 1, 2}, {2, 2}), 3)), "01/10/11");
  EXPECT_EQ(pattern_of(SparseMask::column_intervals(numbers({0, 1, 2, 3}, {1, 4}), 3)), "0/1/0");
}

TEST(SparseMask, OfKeyListsHasTheKeysOfEachRow) {
  const Tensor indices = numbers({3, 0, 2, -1, -1, -1, 1, -1, 2}, {3, 3});
  EXPECT_EQ(pattern_of(SparseMask::key_lists(indices, 4)), "1011/0000/0110");
  EXPECT_EQ(pattern_of(SparseMask::key_lists(indices, 4, numbers({2, 0, 1}, {3}))), "1001/0000/0100");
  EXPECT_EQ(pattern_of(SparseMask::key_lists(Tensor({2, 0}, DType::i32), 3)), "000/000");
  EXPECT_EQ(SparseMask::key_lists(Tensor({0, 4}, DType::i32), 3).query_length(), 0);
  const SparseMask heads = SparseMask::key_lists(numbers({0, 1, 1, 2}, {2, 2, 1}).view().transpose(0, 1), 3);
  EXPECT_TRUE(heads.allows(0, 0, 1, 1) && heads.allows(0, 1, 0, 1) && heads.allows(0, 1, 1, 2));
  EXPECT_FALSE(heads.allows(0, 0, 0, 1));
}

// The lists of 2^40 rows would need memory that an empty tensor does not.
TEST(SparseMask, WithoutEntriesTakesNoTimeForEachRowOrBatchEntry) {
  constexpr std::int64_t kMany = std::int64_t{1} << 40;
  EXPECT_EQ(message_of([] {
              (void)SparseMask::key_lists(Tensor({kMany, 0}, DType::i32), 3);
            }),
            "indices has shape [1099511627776, 0]; at most 2^27 rows without entries are expected");
  EXPECT_EQ(message_of([] {
              (void)SparseMask::row_intervals(Tensor({kMany, 0, 2}, DType::i32), 3);
            }),
            "intervals has shape [1099511627776, 0, 2]; at most 2^27 rows without entries are expected");
  EXPECT_EQ(SparseMask::key_lists(Tensor({kMany, 1, 0, 4}, DType::i32), 3).batch(), kMany);
  EXPECT_EQ(SparseMask::row_intervals(Tensor({kMany, 1, 0, 4, 2}, DType::i32), 3).batch(), kMany);
  EXPECT_EQ(SparseMask::column_intervals(Tensor({kMany, 1, 0, 2}, DType::i32), 3).batch(), kMany);
  const SparseMask rows = SparseMask::row_intervals(Tensor({kMany, 1, 0, 4, 2}, DType::i32), 3);
  EXPECT_EQ(rows.dense().shape(), (heed::Dims{kMany, 1, 0, 3}));
}

// Each row has a list, also a row without slices.
TEST(SparseMaskErrors, NameTheLengthThatSlicesCannotHave) {
  const std::vector<MaskSlice> one{{0, 1, 0, 1}};
  EXPECT_EQ(message_of([&] { (void)SparseMask::slices(one, (std::int64_t{1} << 27) + 1, 1); }),
            "query_length is 134217729; 0 to 2^27 is expected for slices");
  EXPECT_EQ(message_of([&] { (void)SparseMask::slices(one, -1, 1); }),
            "query_length is -1; 0 to 2^27 is expected for slices");
}

TEST(SparseMaskErrors, OfKeyListsNameTheEntry) {
  const Tensor counts = numbers({2, 1}, {1, 2});
  const auto message = [&](const Tensor& indices, const std::optional<heed::TensorView>& given = {}) {
    return message_of([&] { (void)SparseMask::key_lists(indices, 4, given); });
  };
  EXPECT_EQ(message(numbers({0, 1, 2, 4}, {1, 2, 2})),
            "indices has 4 at [0, 1, 1]; a key of 0 to 3, or -1 for an unused entry, is expected");
  EXPECT_EQ(message(numbers({0, -2, 2, 3}, {2, 2})),
            "indices has -2 at [0, 1]; a key of 0 to 3, or -1 for an unused entry, is expected");
  EXPECT_EQ(message(numbers({0, std::int64_t{1} << 32}, {1, 2})),
            "indices has 4294967296 at [0, 1]; a key of 0 to 3, or -1 for an unused entry, is expected");
  EXPECT_EQ(message(numbers({0, -1, 2, 4}, {1, 2, 2}), counts),
            "indices has -1 at [0, 0, 1]; a key of 0 to 3 is expected");
  EXPECT_EQ(message(numbers({0, 1, 2, 4}, {1, 2, 2}), counts), "no error");
  EXPECT_EQ(message(numbers({0, 3, 2, 1, 2, 0, 0, 1}, {1, 1, 2, 4})),
            "indices lists key 0 twice at [0, 0, 1]; each key at most once is expected");
  EXPECT_EQ(message(numbers({0, 1}, {1, 2, 1}), counts),
            "counts has 2 at [0, 0]; 0 to 1, the room of a list, is expected");
  EXPECT_EQ(message(numbers({0, 1}, {2, 1}), counts),
            "counts has shape [1, 2]; [2] is expected for indices of shape [2, 1]");
  EXPECT_EQ(message(Tensor({2, 1}, DType::f32)), "indices has dtype f32; i64 or i32 is expected");
  EXPECT_EQ(message(numbers({0}, {1})),
            "indices has shape [1]; [Lq, n], optionally after [B, H] or [H], is expected");
  EXPECT_EQ(message(Tensor({0, 1, 2, 2}, DType::i32)),
            "indices has shape [0, 1, 2, 2]; at least one batch entry and head is expected");
  EXPECT_EQ(message_of([] {
              (void)SparseMask::key_lists(Tensor({1, 0}, DType::i32), std::int64_t{1} << 31);
            }),
            "key_length is 2147483648; 0 to 2^31 - 1 is expected");
}

TEST(SparseMask, OfSlicesHasTheirUnion) {
  const std::vector<MaskSlice> slices{{0, 2, 0, 2, SliceKind::causal},
                                      {2, 4, 1, 4, SliceKind::inverse_causal}};
  EXPECT_EQ(pattern_of(SparseMask::slices(slices, 4, 4)), "1000/1100/0111/0011");
  EXPECT_EQ(
      pattern_of(SparseMask::slices(std::vector<MaskSlice>{{0, 3, 0, 4, SliceKind::both_causal}}, 3, 4)),
      "1100/0110/0011");
  EXPECT_EQ(pattern_of(SparseMask::slices({}, 2, 2)), "00/00");
}

TEST(SparseMask, OfBlocksEndsWithTheSequence) {
  EXPECT_EQ(pattern_of(SparseMask::blocks(numbers({0, 1, 3}, {3}), numbers({1, 0, 1}, {3}), 2, 2, 3, 3)),
            "001/001/111");
}

TEST(SparseMask, OfFlashMaskReadsItsNumbersAsItDoes) {
  EXPECT_EQ(pattern_of(SparseMask::from_flash_mask(numbers({2, 3, 3}, {3, 1}), true, 3)), "100/110/011");
  EXPECT_EQ(pattern_of(SparseMask::from_flash_mask(numbers({2, 0, 3, 1}, {2, 2}), false, 3)), "10/11/01");
}

TEST(SparseMask, WithANameIsWhatTheNameSays) {
  using namespace heed::masks;
  EXPECT_EQ(pattern_of(prefix_lm(2, 3, 4)), "1100/1100/1110");
  EXPECT_EQ(pattern_of(documents(std::vector<std::int64_t>{1, 0, 2}, false)), "100/011/011");
  EXPECT_EQ(pattern_of(documents(std::vector<std::int64_t>{1, 2}, true)), "100/010/011");
  EXPECT_EQ(pattern_of(sliding_window(1, 0, 3, 3)), "100/110/011");
  EXPECT_EQ(pattern_of(sinks_and_window(1, 2, 4, 4)), "1000/1100/1110/1011");
  EXPECT_EQ(pattern_of(dilated(1, 2, 4, 4)), "1010/0101/1010/0101");
  EXPECT_EQ(pattern_of(shared_question(1, std::vector<std::int64_t>{2, 1})), "1000/1100/1110/1001");
}

// Rows of blocks: the global blocks, a window, and as many random ones as requested, which depend only on the
// seed.
TEST(SparseMask, OfBigBirdHasItsThreeKindsOfBlocks) {
  const auto make = [](std::uint64_t seed) { return heed::masks::bigbird(4, 1, 3, 2, seed, 64, 64); };
  const SparseMask mask = make(7);
  EXPECT_EQ(pattern_of(mask), pattern_of(make(7)));
  EXPECT_NE(pattern_of(mask), pattern_of(make(8)));
  for (std::int64_t row = 0; row < 16; ++row) {
    std::int64_t blocks = 0;
    for (std::int64_t column = 0; column < 16; ++column) {
      const bool allowed = mask.allows(0, 0, 4 * row, 4 * column);
      for (std::int64_t at = 0; at < 16; ++at)
        ASSERT_EQ(mask.allows(0, 0, 4 * row + at / 4, 4 * column + at % 4), allowed);
      const bool sure = row == 0 || row == 15 || column == 0 || column == 15 || std::abs(row - column) <= 1;
      EXPECT_TRUE(allowed || !sure) << row << ", " << column;
      blocks += allowed && !sure ? 1 : 0;
    }
    EXPECT_EQ(blocks, row == 0 || row == 15 ? 0 : 2) << row;
  }
}

TEST(SparseMask, OfAFunctionAsksIt) {
  EXPECT_EQ(
      pattern_of(heed::mask_mod([](auto, auto, auto i, auto j) { return (i + j) % 2 == 0; }, 1, 1, 2, 3)),
      "101/010");
}

TEST(SparseMask, AndAnotherIsWhatBothAllow) {
  using namespace heed::masks;
  const SparseMask both = sliding_window(1, -1, 3, 3) & prefix_lm(2, 3, 3);
  EXPECT_EQ(pattern_of(both), "110/110/011");
  EXPECT_EQ(pattern_of(SparseMask() & both), pattern_of(both));
  EXPECT_EQ(pattern_of(both & SparseMask()), pattern_of(both));
}

TEST(SparseMask, SaysWhichRunsOfKeysARowSees) {
  const auto runs = heed::masks::sinks_and_window(2, 3, 10, 10).runs(0, 0, 8);
  EXPECT_EQ(runs, (std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 2}, {6, 9}}));
}

TEST(SparseMask, OfEachFormIsTheBooleanThatTheDefinitionsGive) {
  for (std::uint64_t index = 0; index < 300; ++index) {
    heed::test::Draw draw(20261126, index);
    const std::int64_t queries = draw.between(0, 80),
                       keys = draw.chance(0.4) ? queries : draw.between(0, 150);
    const heed::test::RandomMask made = heed::test::MaskMaker(draw, 2, 4, 2, queries, keys).make();
    const auto* dense = static_cast<const bool*>(made.dense.view().data());
    const SparseMask& mask = made.mask;
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t h = 0; h < 4; ++h)
        for (std::int64_t i = 0; i < queries; ++i)
          for (std::int64_t j = 0; j < keys; ++j, ++dense) {
            const bool allowed =
                mask.is_empty() || mask.allows(mask.batch() == 1 ? 0 : b, h * mask.heads() / 4, i, j);
            ASSERT_EQ(allowed, *dense)
                << made.kind << " " << index << ": " << b << ", " << h << ", " << i << ", " << j;
          }
  }
}

// A boolean mask of 100,000 x 100,000 takes 10 GB.
TEST(SparseMask, KeepsMemoryThatGrowsWithTheLength) {
  constexpr std::int64_t kLength = 100'000;
  const std::vector<std::int64_t> lengths(100, 1000);
  Tensor column({kLength, 2}, DType::i64);
  for (std::int64_t j = 0; j < kLength; ++j) {
    column.at<std::int64_t>(j, 0) = (j / 1000 + 1) * 1000;
    column.at<std::int64_t>(j, 1) = kLength;
  }
  Tensor document({kLength}, DType::i64);
  for (std::int64_t i = 0; i < kLength; ++i) document.at<std::int64_t>(i) = i / 1000;
  const std::vector<std::pair<std::string, heed::TensorView>> arrays{{"doc", document}};
  for (const SparseMask& mask :
       {heed::masks::documents(lengths, true), heed::masks::sinks_and_window(4, 1000, kLength, kLength),
        heed::masks::prefix_lm(1000, kLength, kLength), SparseMask::from_flash_mask(column, true, kLength),
        SparseMask::expression("j <= i && doc[i] == doc[j]", kLength, kLength, arrays)})
    EXPECT_LE(mask.bytes(), std::size_t{100} * kLength);
}

TEST(SparseMaskErrors, NameWhatIsWrong) {
  const Tensor floats({2, 1, 2}), empty({0, 2, 1, 2}, DType::i64);
  EXPECT_EQ(message_of([&] { (void)SparseMask::row_intervals(floats, 4); }),
            "intervals has dtype f32; i64 or i32 is expected");
  EXPECT_EQ(message_of([&] {
              (void)SparseMask::row_intervals(numbers({1, 5}, {1, 1, 2}), 4);
            }),
            "intervals has 5 at position 1; 0 to 4 is expected");
  EXPECT_EQ(message_of([&] {
              (void)SparseMask::row_intervals(numbers({1, 5}, {1, 2, 1}), 4);
            }),
            "intervals has shape [1, 2, 1]; two numbers per interval, a begin and an end, are expected");
  EXPECT_EQ(message_of([&] { (void)SparseMask::row_intervals(empty, 4); }),
            "intervals has shape [0, 2, 1, 2]; at least one batch entry and head is expected");
  EXPECT_EQ(message_of([&] {
              (void)SparseMask::column_intervals(numbers({1, 2, 3}, {1, 3}), 4);
            }),
            "intervals has shape [1, 3]; 1, 2 or 4 numbers per key are expected");
  EXPECT_EQ(message_of([&] {
              (void)SparseMask::column_intervals(numbers({-1}, {1, 1}), 4);
            }),
            "intervals has -1 at position 0; 0 to 4 is expected");
  EXPECT_EQ(message_of([&] {
              (void)SparseMask::column_intervals(numbers({0}, {1, 1}), std::int64_t{1} << 31);
            }),
            "query_length is 2147483648; 0 to 2^31 - 1 is expected");
  EXPECT_EQ(message_of([&] {
              (void)SparseMask::slices(std::vector<MaskSlice>{{0, 3, 0, 1}}, 2, 2);
            }),
            "slices[0] has queries 0 to 3; a range within 0 to 2 is expected");
  EXPECT_EQ(message_of([&] {
              (void)SparseMask::slices(std::vector<MaskSlice>{{0, 1, 0, 1, static_cast<SliceKind>(4)}}, 2, 2);
            }),
            "slices[0] has kind 4; 0 to 3 is expected");
  EXPECT_EQ(message_of([&] {
              (void)SparseMask::blocks(numbers({0, 1}, {2}), numbers({2}, {1}), 2, 2, 2, 4);
            }),
            "indices[0] is 2; a block column of 0 to 1 is expected");
  EXPECT_EQ(message_of([&] {
              (void)SparseMask::blocks(numbers({0, 1}, {2}), numbers({0}, {1}), 0, 2, 2, 4);
            }),
            "query_block is 0; 1 or more is expected");
  EXPECT_EQ(
      message_of([&] {
        (void)SparseMask::blocks(numbers({0, 2}, {2}), numbers({0}, {1}), 2, 2, 2, 4);
      }),
      "offsets run from 0 to 2; non-decreasing numbers from 0 to 1, the number of indices, are expected");
  EXPECT_EQ(message_of([&] {
              (void)SparseMask::from_flash_mask(numbers({0, 0, 0, 0}, {1, 4}), true, 2);
            }),
            "startend_row_indices has shape [1, 4]; 1 or 2 numbers per key are expected with causal");
  for (const Tensor& rows : {numbers({0, 3}, {1, 2}), numbers({0, 3, 0, 0}, {1, 4})})
    EXPECT_EQ(message_of([&] { (void)SparseMask::from_flash_mask(rows, false, 2); }),
              "startend_row_indices has 3 at position 1; 0 to 2 is expected");
  EXPECT_EQ(message_of([&] {
              (void)heed::masks::documents(std::vector<std::int64_t>{2, -1}, false);
            }),
            "lengths[1] is -1; 0 or more, and at most 2^48 in total, are expected");
  EXPECT_EQ(message_of([&] { (void)heed::masks::dilated(1, 0, 2, 2); }),
            "step is 0; 1 to 268435456 is expected");
  EXPECT_EQ(message_of([&] { (void)(heed::masks::prefix_lm(1, 2, 2) & heed::masks::prefix_lm(1, 2, 3)); }),
            "masks have sizes [1, 1, 2, 2] and [1, 1, 2, 3]; equal sizes, or 1 for a batch size or head "
            "count, are expected");
  EXPECT_EQ(message_of([&] { (void)heed::masks::prefix_lm(1, 2, 2).allows(0, 0, 0, 2); }),
            "key is 2, but the mask has 2 keys");
}

TEST(SparseMaskErrors, OfBlockMasksNameTheTensor) {
  const Tensor count = numbers({1}, {1, 1, 1}), index = numbers({1}, {1, 1, 1, 1}),
               many = numbers({2}, {1, 1, 1});
  const auto message = [&](const heed::BlockMaskView& view) {
    return message_of([&] { (void)SparseMask::from_block_mask(view, 2, 2); });
  };
  EXPECT_EQ(message({.kv_num_blocks = count, .kv_indices = index, .query_block = 2, .key_block = 2}),
            "kv_indices names block column 1; 0 to 0 is expected");
  EXPECT_EQ(message({.kv_num_blocks = many, .kv_indices = index, .query_block = 2, .key_block = 1}),
            "kv_indices lists 2 blocks of block row 0; 0 to 1 are expected");
  EXPECT_EQ(message({.kv_num_blocks = count, .kv_indices = index, .query_block = 1, .key_block = 1}),
            "kv_num_blocks has shape [1, 1, 1]; 2 block rows for 2 queries, 1 batch entry and 1 head are "
            "expected");
  EXPECT_EQ(message({.kv_num_blocks = count, .kv_indices = index, .full_kv_indices = index}),
            "only one of full_kv_num_blocks and full_kv_indices is given; both or neither are expected");
}

TEST(SparseMaskErrors, OfACallNameTheSizes) {
  const Tensor x({1, 2, 3, 8}), y({1, 2, 4, 8});
  const auto message = [&](const SparseMask& mask) {
    return message_of([&] { (void)heed::attention(x, y, y, {.sparse_mask = mask}); });
  };
  EXPECT_EQ(message(heed::masks::prefix_lm(1, 3, 3)),
            "sparse_mask has size [1, 1, 3, 3]; [1, 2, 3, 4], or 1 for the first two, or a divisor of the "
            "heads, is expected");
  EXPECT_EQ(message(SparseMask::row_intervals(Tensor({3, 3, 1, 2}, DType::i64), 4)),
            "sparse_mask has size [1, 3, 3, 4]; [1, 2, 3, 4], or 1 for the first two, or a divisor of the "
            "heads, is expected");
}

}  // namespace
