#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attention/masks/mask_part.hpp"
#include "heed/attention/mask_mod.hpp"
#include "heed/attention/masks.hpp"
#include "heed/attention/score_mod.hpp"
#include "heed/tensor.hpp"
#include "random_expression.hpp"
#include "support.hpp"

namespace {

using heed::ScoreMod;
using heed::SparseMask;
using heed::Tensor;
using heed::TensorView;
using heed::detail::Coverage;
using heed::detail::MaskPart;
using heed::detail::MaskTile;
using heed::test::message_of;
using heed::test::RandomExpressions;
using heed::test::share_of;

using Arrays = std::vector<std::pair<std::string, TensorView>>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

const MaskPart& part_of(const SparseMask& mask) { return *mask.parts()[0]; }

std::vector<std::uint8_t> row_of(const SparseMask& mask, std::int64_t b, std::int64_t h, std::int64_t i,
                                 std::int64_t begin, std::int64_t end) {
  std::vector<std::uint8_t> visible(static_cast<std::size_t>(end - begin), 1);
  part_of(mask).restrict_row({b, h, i, i + 1, begin, end}, visible.data());
  return visible;
}

// Evaluates a score expression.
double score_of(std::string_view text, double s, std::int64_t i = 0, std::int64_t j = 0,
                const Arrays& arrays = {}) {
  ScoreMod::expression(text, arrays).part()->apply({0, 0, i, j, j + 1}, &s, nullptr);
  return s;
}

using Pairs = std::function<bool(std::int64_t, std::int64_t)>;

// Checks every pair of the mask against the function, in rows of all keys and of some keys.
void expect_mask(std::string_view text, const Pairs& expected, std::int64_t query_length,
                 std::int64_t key_length, const Arrays& arrays = {}) {
  SCOPED_TRACE(std::string(text));
  const SparseMask mask = SparseMask::expression(text, query_length, key_length, arrays);
  for (std::int64_t i = 0; i < query_length; ++i)
    for (const std::int64_t begin : {std::int64_t{0}, key_length / 3}) {
      const auto visible = row_of(mask, 0, 0, i, begin, key_length);
      for (std::int64_t j = begin; j < key_length; ++j)
        ASSERT_EQ(visible[static_cast<std::size_t>(j - begin)], expected(i, j) ? 1 : 0)
            << "i " << i << " j " << j;
    }
}

Coverage true_coverage(const Pairs& allowed, const MaskTile& tile) {
  bool any = false, all = true;
  for (std::int64_t i = tile.row_begin; i < tile.row_end; ++i)
    for (std::int64_t j = tile.key_begin; j < tile.key_end; ++j) (allowed(i, j) ? any : all) = allowed(i, j);
  return all ? Coverage::full : any ? Coverage::cut : Coverage::empty;
}

MaskTile any_tile(std::mt19937_64& random, std::int64_t query_length, std::int64_t key_length) {
  const auto range = [&](std::int64_t length) {
    const auto begin = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(length));
    const auto left = static_cast<std::uint64_t>(length - begin);
    return std::pair(begin, begin + 1 + static_cast<std::int64_t>(random() % left));
  };
  const auto [row_begin, row_end] = range(query_length);
  const auto [key_begin, key_end] = range(key_length);
  return {0, 0, row_begin, row_end, key_begin, key_end};
}

TEST(MaskExpression, OperatorsAreThoseOfC) {
  constexpr std::int64_t kL = 300;  // more than a chunk
  expect_mask(
      "j <= i", [](auto i, auto j) { return j <= i; }, kL, kL);
  expect_mask(
      "j < i", [](auto i, auto j) { return j < i; }, 9, 7);
  expect_mask(
      "j > i", [](auto i, auto j) { return j > i; }, 9, 7);
  expect_mask(
      "j >= i", [](auto i, auto j) { return j >= i; }, 9, 7);
  expect_mask(
      "j == i", [](auto i, auto j) { return j == i; }, 9, 7);
  expect_mask(
      "j != i", [](auto i, auto j) { return j != i; }, 9, 7);
  expect_mask(
      "i + 2 * j < 9", [](auto i, auto j) { return i + 2 * j < 9; }, 9, 7);
  expect_mask(
      "(i + 2) * j < 9", [](auto i, auto j) { return (i + 2) * j < 9; }, 9, 7);
  expect_mask(
      "i - 3 - j > 0", [](auto i, auto j) { return i - 3 - j > 0; }, 9, 7);
  expect_mask(
      "i // 3 == j // 2", [](auto i, auto j) { return i / 3 == j / 2; }, 9, 7);
  expect_mask(
      "i % 3 == j % 2", [](auto i, auto j) { return i % 3 == j % 2; }, 9, 7);
  expect_mask(
      "i / 2 > j", [](auto i, auto j) { return static_cast<double>(i) / 2 > static_cast<double>(j); }, 9, 7);
  expect_mask(
      "-i + j < -2", [](auto i, auto j) { return -i + j < -2; }, 9, 7);
  expect_mask(
      "!(j < i)", [](auto i, auto j) { return j >= i; }, 9, 7);
  expect_mask(
      "not j < 2 or i == 1 and j == 1", [](auto i, auto j) { return j >= 2 || (i == 1 && j == 1); }, 9, 7);
  expect_mask(
      "not j == i && i > 2", [](auto i, auto j) { return j != i && i > 2; }, 9, 7);
  expect_mask(
      "(j < i) == not (i > 2)", [](auto i, auto j) { return (j < i) != (i > 2); }, 9, 7);
  expect_mask(
      "j == 0 || i > 3 && j > 3", [](auto i, auto j) { return j == 0 || (i > 3 && j > 3); }, 9, 7);
  expect_mask(
      "i > 3 ? j < 2 : j > 4", [](auto i, auto j) { return i > 3 ? j < 2 : j > 4; }, 9, 7);
  expect_mask(
      "j > 3 ? i < 2 : j > 1 ? i > 4 : true",
      [](auto i, auto j) { return j > 3   ? i < 2
                                  : j > 1 ? i > 4
                                          : true; }, 9, 7);
  expect_mask(
      "where(j > 3, i, j) < 5", [](auto i, auto j) { return (j > 3 ? i : j) < 5; }, 9, 7);
  expect_mask(
      "abs(i - j) <= 2", [](auto i, auto j) { return std::abs(i - j) <= 2; }, 9, 7);
  expect_mask(
      "min(i, j) > 2", [](auto i, auto j) { return std::min(i, j) > 2; }, 9, 7);
  expect_mask(
      "max(i, j) > 2", [](auto i, auto j) { return std::max(i, j) > 2; }, 9, 7);
  expect_mask(
      "floor(sqrt(j)) == i",
      [](auto i, auto j) { return static_cast<std::int64_t>(std::sqrt(static_cast<double>(j))) == i; }, 9,
      70);
  expect_mask(
      "exp(j) < 20 && log(j + 1) < 2 && tanh(i) > 0.9", [](auto i, auto j) { return j <= 2 && i >= 2; }, 9,
      7);
  expect_mask(
      "(i < 3) == (j < 3)", [](auto i, auto j) { return (i < 3) == (j < 3); }, 9, 7);
  expect_mask(
      "i < 3 != j < 3", [](auto i, auto j) { return (i < 3) != (j < 3); }, 9, 7);
  expect_mask(
      "true", [](auto, auto) { return true; }, 9, 7);
  expect_mask(
      "i > 4", [](auto i, auto) { return i > 4; }, 9, 7);
  expect_mask(
      "i > 4 && j > 3", [](auto i, auto j) { return i > 4 && j > 3; }, 9, 7);
  expect_mask(
      "i > 4 || j > 3", [](auto i, auto j) { return i > 4 || j > 3; }, 9, 7);
  expect_mask(
      "j > 3 || i > 4", [](auto i, auto j) { return i > 4 || j > 3; }, 9, 7);
}

TEST(MaskExpression, NumbersAreThoseOfDouble) {
  EXPECT_EQ(score_of("1.5e3 + .25", 0), 1500.25);
  EXPECT_EQ(score_of("2.", 0), 2);
  EXPECT_EQ(score_of("-inf", 0), -kInfinity);
  EXPECT_EQ(score_of("2 + 3 * 4 - 8 / 4", 0), 12);
  EXPECT_EQ(score_of("7 // 2", 0), 3);
  EXPECT_EQ(score_of("-7 // 2", 0), -4);
  EXPECT_EQ(score_of("-7 % 3", 0), 2);
  EXPECT_EQ(score_of("7 % -3", 0), -2);
  EXPECT_EQ(score_of("s // 2", -7), -4);
  EXPECT_EQ(score_of("s % 3", -7), 2);
  EXPECT_EQ(score_of("- - s", 3), 3);
  EXPECT_EQ(score_of("2 - -s", 3), 5);
  EXPECT_EQ(score_of("s < 0 ? -1 : s > 0 ? 1 : 0", 5), 1);
  EXPECT_EQ(score_of("where(j <= i, s, -inf)", 5, 3, 4), -kInfinity);
  EXPECT_TRUE(std::isnan(score_of("min(s, 0 / 0)", 5)));
  EXPECT_TRUE(std::isnan(score_of("max(0 / 0, s)", 5)));
  EXPECT_EQ(score_of("s == s ? 1 : 0", NAN), 0);
  for (const double x : {0x1p51 + 0.5, -0x1p51 - 0.5, 0x1p52 - 0.5, 0.5 - 0x1p52, 0.0, 0.5, -0.5, 1.0, -1.0,
                         1e15 + 0.5, -1e15 - 0.5, 4503599627370497.5, -1e300, kInfinity})
    EXPECT_EQ(score_of("floor(s)", x), std::floor(x));
}

TEST(MaskExpression, ArraysOfEveryDType) {
  const std::vector<std::int64_t> documents{0, 0, 0, 1, 1, 2, 2, 2, 2};
  const Tensor wide = Tensor::from(std::span<const std::int64_t>(documents), {9});
  const auto same = [&](std::int64_t i, std::int64_t j) {
    return documents[static_cast<std::size_t>(i)] == documents[static_cast<std::size_t>(j)];
  };
  for (const heed::DType dtype : {heed::DType::f64, heed::DType::f32, heed::DType::f16, heed::DType::bf16,
                                  heed::DType::i64, heed::DType::i32, heed::DType::u8}) {
    const Tensor narrow = Tensor::copy_of(wide, dtype);
    expect_mask("doc[i] == doc[j]", same, 9, 9, {{"doc", narrow}});
  }
  const Tensor flags = Tensor::from<bool>({true, false, true, true, false, true, false, true, true}, {9});
  expect_mask("keep[j] || j == i", [&](auto i, auto j) { return flags.at<bool>(j) || j == i; }, 9, 9,
              {{"keep", flags}});
  expect_mask("j <= i and not keep[j]", [&](auto i, auto j) { return j <= i && !flags.at<bool>(j); }, 9, 9,
              {{"keep", flags}});
  // A view with a stride of two elements.
  const TensorView every_other(wide.view().data(), heed::DType::i64, {4}, {2});
  expect_mask("doc[min(j, 3)] == 2",
              [&](auto, auto j) {
                return documents[static_cast<std::size_t>(2 * std::min<std::int64_t>(j, 3))] == 2;
              },
              9, 9, {{"doc", every_other}});
}

TEST(MaskExpression, IndicesAreExpressions) {
  const Tensor table = Tensor::from<std::int32_t>({3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8}, {12});
  const Arrays arrays{{"t", table}};
  const auto at = [&](std::int64_t n) { return table.at<std::int32_t>(n); };
  expect_mask(
      "t[j + 3] > 3", [&](auto, auto j) { return at(j + 3) > 3; }, 5, 9, arrays);
  expect_mask(
      "t[j - i + 4] > 3", [&](auto i, auto j) { return at(j - i + 4) > 3; }, 5, 8, arrays);
  expect_mask(
      "t[i - j + 7] > 3", [&](auto i, auto j) { return at(i - j + 7) > 3; }, 5, 8, arrays);
  expect_mask(
      "t[j // 2] == t[i % 3]", [&](auto i, auto j) { return at(j / 2) == at(i % 3); }, 12, 24, arrays);
  expect_mask(
      "t[t[j]] == t[max(i - 1, 0)]",
      [&](auto i, auto j) { return at(at(j)) == at(std::max<std::int64_t>(i - 1, 0)); }, 12, 12, arrays);
  expect_mask(
      "t[j > i ? 2 : i] == 4", [&](auto i, auto j) { return at(j > i ? 2 : i) == 4; }, 12, 12, arrays);
  expect_mask(
      "t[7] < j", [&](auto, auto j) { return 6 < j; }, 3, 12, arrays);
}

TEST(MaskExpression, ArraysOfBatchAndHeadsGiveTheMaskItsSizes) {
  const Tensor lengths = Tensor::from<std::int64_t>({3, 5}, {2});
  const Tensor windows = Tensor::from<std::int64_t>({1, 2, 4}, {3});
  const SparseMask mask = SparseMask::expression("j < len[b] && i - j < w[h] && (h > 0 || j > 0)", 6, 6,
                                                 Arrays{{"len", lengths}, {"w", windows}});
  EXPECT_EQ(mask.batch(), 2);
  EXPECT_EQ(mask.heads(), 3);
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t h = 0; h < 3; ++h)
      for (std::int64_t i = 0; i < 6; ++i) {
        const auto visible = row_of(mask, b, h, i, 0, 6);
        for (std::int64_t j = 0; j < 6; ++j)
          EXPECT_EQ(visible[static_cast<std::size_t>(j)], j < lengths.at<std::int64_t>(b) &&
                                                              i - j < windows.at<std::int64_t>(h) &&
                                                              (h > 0 || j > 0));
      }
  EXPECT_EQ(SparseMask::expression("j < i", 6, 6).batch(), 1);
  EXPECT_EQ(SparseMask::expression("j < i", 6, 6).heads(), 1);
  EXPECT_EQ(SparseMask::expression("j <= i", 0, 0).query_length(), 0);
}

// Keys that are already forbidden in `visible` stay forbidden.
TEST(MaskExpression, RowsOnlyForbid) {
  const SparseMask mask = SparseMask::expression("j <= i", 4, 4);
  std::vector<std::uint8_t> visible{1, 0, 1, 1};
  part_of(mask).restrict_row({0, 0, 2, 3, 0, 4}, visible.data());
  EXPECT_EQ(visible, (std::vector<std::uint8_t>{1, 0, 1, 0}));
}

TEST(MaskExpression, CoverageIsExactForTheUsualMasks) {
  constexpr std::int64_t kL = 200;
  std::vector<std::int64_t> documents;
  for (std::int64_t i = 0; i < kL; ++i) documents.push_back(i / 37);
  const Tensor doc = Tensor::from(std::span<const std::int64_t>(documents), {kL});
  const auto d = [&](std::int64_t i) { return documents[static_cast<std::size_t>(i)]; };
  const std::vector<std::pair<std::string, Pairs>> masks{
      {"j <= i", [](auto i, auto j) { return j <= i; }},
      {"i - j < 50", [](auto i, auto j) { return i - j < 50; }},
      {"i - j >= 50", [](auto i, auto j) { return i - j >= 50; }},
      {"j + 5 <= i", [](auto i, auto j) { return j + 5 <= i; }},
      {"i - 2 * j > j - 2 * i", [](auto i, auto j) { return i - 2 * j > j - 2 * i; }},
      {"j < 30", [](auto, auto j) { return j < 30; }},
      {"doc[i] == doc[j]", [&](auto i, auto j) { return d(i) == d(j); }},
      {"doc[i] >= doc[j]", [&](auto i, auto j) { return d(i) >= d(j); }},
      {"i // 16 >= j // 16", [](auto i, auto j) { return i / 16 >= j / 16; }},
      {"i // 16 == j // 16", [](auto i, auto j) { return i / 16 == j / 16; }},
  };
  std::mt19937_64 random(1);
  for (const auto& [text, allowed] : masks) {
    SCOPED_TRACE(text);
    const SparseMask mask = SparseMask::expression(text, kL, kL, Arrays{{"doc", doc}});
    for (std::uint64_t n = share_of(400); n-- > 0;) {
      const MaskTile tile = any_tile(random, kL, kL);
      ASSERT_EQ(part_of(mask).coverage(tile), true_coverage(allowed, tile))
          << tile.row_begin << " " << tile.row_end << " " << tile.key_begin << " " << tile.key_end;
    }
  }
}

// The coverage of a conjunction is full exactly where it is full for all parts.
TEST(MaskExpression, CoverageOfConjunctions) {
  constexpr std::int64_t kL = 256;
  const SparseMask window = SparseMask::expression("i - j >= 0 && i - j < 64", kL, kL);
  const SparseMask band = SparseMask::expression("abs(i - j) < 64", kL, kL);
  for (std::int64_t row = 0; row < kL; row += 16)
    for (std::int64_t key = 0; key < kL; key += 16) {
      const MaskTile tile{0, 0, row, row + 16, key, key + 16};
      EXPECT_EQ(part_of(window).coverage(tile),
                true_coverage([](auto i, auto j) { return i - j >= 0 && i - j < 64; }, tile));
      EXPECT_EQ(part_of(band).coverage(tile),
                true_coverage([](auto i, auto j) { return std::abs(i - j) < 64; }, tile));
    }
}

TEST(MaskExpression, NaNInAnArrayIsEqualToNothing) {
  const Tensor doc = Tensor::from<float>({NAN, NAN, 1, 1}, {4});
  const Arrays arrays{{"doc", doc}};
  const auto same = [&](std::int64_t i, std::int64_t j) { return doc.at<float>(i) == doc.at<float>(j); };
  expect_mask("doc[i] == doc[j]", same, 4, 4, arrays);
  expect_mask(
      "doc[i] != doc[j]", [&](auto i, auto j) { return !same(i, j); }, 4, 4, arrays);
  for (const std::string text :
       {"doc[i] == doc[j]", "doc[i] != doc[j]", "doc[i] <= doc[j]", "!(doc[i] < doc[j])"}) {
    const SparseMask mask = SparseMask::expression(text, 4, 4, arrays);
    const Pairs allowed = [&](std::int64_t i, std::int64_t j) {
      return row_of(mask, 0, 0, i, j, j + 1)[0] == 1;
    };
    std::mt19937_64 random(2);
    for (int n = 0; n < 100; ++n) {
      const MaskTile tile = any_tile(random, 4, 4);
      const Coverage coverage = part_of(mask).coverage(tile);
      EXPECT_TRUE(coverage == Coverage::cut || coverage == true_coverage(allowed, tile)) << text;
    }
  }
}

TEST(MaskExpression, RandomMasksAreWhatTheirTextSays) {
  constexpr std::int64_t kQueries = 40, kKeys = 90;
  int certain = 0;
  for (std::uint64_t seed = 0; seed < share_of(1500); ++seed) {
    RandomExpressions random(seed, false);
    const RandomExpressions::Condition expected = random.condition(1 + static_cast<int>(seed % 4));
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + expected.text);
    const Tensor array = Tensor::from(std::span<const double>(random.array), {150});
    const SparseMask mask = SparseMask::expression(expected.text, kQueries, kKeys, Arrays{{"a", array}});
    const Pairs allowed = [&](std::int64_t i, std::int64_t j) {
      return expected.value(0, static_cast<double>(i), static_cast<double>(j));
    };
    for (std::int64_t i = 0; i < kQueries; i += 7) {
      const auto visible = row_of(mask, 0, 0, i, 0, kKeys);
      for (std::int64_t j = 0; j < kKeys; ++j)
        ASSERT_EQ(visible[static_cast<std::size_t>(j)], allowed(i, j) ? 1 : 0) << "i " << i << " j " << j;
    }
    for (int n = 0; n < 12; ++n) {
      MaskTile tile = any_tile(random.random, kQueries, kKeys);
      if (n % 2 == 0)
        tile.row_end = tile.row_begin + 1, tile.key_end = std::min(tile.key_begin + 3, tile.key_end);
      const Coverage coverage = part_of(mask).coverage(tile);
      if (coverage == Coverage::cut) continue;
      ++certain;
      ASSERT_EQ(coverage, true_coverage(allowed, tile))
          << tile.row_begin << " " << tile.row_end << " " << tile.key_begin << " " << tile.key_end;
    }
  }
  EXPECT_GT(certain, 100);
}

TEST(MaskFunction, AsksTheFunction) {
  const SparseMask mask = heed::mask_mod(
      [](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) { return (b + h + i + j) % 3 == 0; },
      2, 3, 5, 7);
  EXPECT_EQ(mask.batch(), 2);
  EXPECT_EQ(mask.heads(), 3);
  EXPECT_EQ(mask.query_length(), 5);
  EXPECT_EQ(mask.key_length(), 7);
  EXPECT_EQ(row_of(mask, 1, 2, 4, 2, 7), (std::vector<std::uint8_t>{1, 0, 0, 1, 0}));
  EXPECT_EQ(part_of(mask).coverage({0, 0, 0, 1, 0, 1}), Coverage::cut);
  const auto any = [](std::int64_t, std::int64_t, std::int64_t, std::int64_t) { return true; };
  EXPECT_EQ(message_of([&] { (void)heed::mask_mod(any, 0, 1, 1, 1); }),
            "batch of a mask function is 0, but must be at least 1");
  EXPECT_EQ(message_of([&] { (void)heed::mask_mod(any, 1, 1, 1, -1); }),
            "key_length of a mask function is -1, but must be at least 0");
  using Function = bool(std::int64_t, std::int64_t, std::int64_t, std::int64_t);
  const std::string null = "a mask function is null; a function is expected";
  EXPECT_EQ(message_of([] { (void)heed::mask_mod(std::function<Function>(), 1, 1, 1, 1); }), null);
  EXPECT_EQ(message_of([] { (void)heed::mask_mod(static_cast<Function*>(nullptr), 1, 1, 1, 1); }), null);
  EXPECT_EQ(message_of([] { (void)heed::function_mask(nullptr, nullptr, 1, 1, 1, 1); }), null);
  EXPECT_EQ(message_of([&] { (void)heed::mask_mod(std::function<Function>(any), 1, 1, 1, 1); }), "no error");
}

std::string mask_fault(const std::string& text, const Arrays& arrays = {}) {
  return message_of([&] { (void)SparseMask::expression(text, 100, 100, arrays); });
}
std::string score_fault(const std::string& text, const Arrays& arrays = {}) {
  return message_of([&] { (void)ScoreMod::expression(text, arrays); });
}
std::string quoted(const std::string& kind, const std::string& text, const std::string& fault) {
  std::string message = kind;
  return message.append(" expression \"").append(text).append("\": ").append(fault);
}
// For texts that the message quotes completely.
void expect_fault(const std::string& text, const std::string& fault, const Arrays& arrays = {}) {
  EXPECT_EQ(mask_fault(text, arrays), quoted("mask", text, fault));
}
void expect_score_fault(const std::string& text, const std::string& fault, const Arrays& arrays = {}) {
  EXPECT_EQ(score_fault(text, arrays), quoted("score", text, fault));
}

TEST(MaskExpressionFaults, Words) {
  expect_fault("j <= k", "unknown name 'k' at column 6; b, h, i or j is expected");
  const Tensor doc = Tensor::from<float>({0, 1}, {2});
  expect_fault("j <= k", "unknown name 'k' at column 6; b, h, i, j or an array (doc, w) is expected",
               {{"doc", doc}, {"w", doc}});
  expect_score_fault("s + k", "unknown name 'k' at column 5; b, h, i, j or s is expected");
  expect_score_fault("s + k", "unknown name 'k' at column 5; b, h, i, j, s or an array (doc) is expected",
                     {{"doc", doc}});
  expect_fault("s > 0", "s at column 1 is the score, which masks do not see");
  expect_fault("j = i", "'=' at column 3 is not an operator; equality is ==");
  expect_fault("j < i & true", "'&' at column 7 is not an operator; a conjunction is &&");
  expect_fault("j < i | true", "'|' at column 7 is not an operator; a disjunction is ||");
  expect_fault("j # i", "'#' at column 3 is not part of the language");
  expect_fault("j ~ .i", "'~' at column 3 is not part of the language");
  expect_fault("j < .i", "'.' at column 5 is not part of the language");
  expect_fault("j < .", "'.' at column 5 is not part of the language");
  EXPECT_EQ(mask_fault("j\t< \x7f"), quoted("mask", "j < ?", "'?' at column 5 is not part of the language"));
  Arrays many;
  for (const char* name : {"a", "c", "d", "e", "f", "g", "k", "l", "m"}) many.emplace_back(name, doc);
  expect_fault(
      "n", "unknown name 'n' at column 1; b, h, i, j or an array (a, c, d, e, f, g, k, l, ...) is expected",
      many);
  expect_fault("2j < i", "'2j' at column 1 is not a number; a product needs *");
  expect_fault("1.2.3 < i", "'1.2.3' at column 1 is not a number; a product needs *");
  expect_fault("i < 1e999", "'1e999' at column 5 is out of double's range");
}

TEST(MaskExpressionFaults, Grammar) {
  expect_fault("", "unexpected end at column 1; a value is expected");
  expect_fault("j <", "unexpected end at column 4; a value is expected");
  expect_fault("j < )", "unexpected ')' at column 5; a value is expected");
  expect_fault("j < i i", "unexpected 'i' at column 7; an operator or the end is expected");
  expect_fault("(j < i", "unexpected end at column 7; an operator or ) is expected");
  expect_fault("j < i ? true", "unexpected end at column 13; an operator or : is expected");
  expect_fault("min < 3", "unexpected '<' at column 5; ( is expected after min");
  expect_fault("min(i) < 3", "min at column 1 takes 2 values, but has 1");
  expect_fault("abs(i, j, 3, 4) < 3", "abs at column 1 takes 1 value, but has 4");
  const Tensor doc = Tensor::from<float>({0, 1}, {2});
  expect_fault("doc < 3", "unexpected '<' at column 5; [ is expected after doc", {{"doc", doc}});
  expect_fault("doc[i < 3", "unexpected end at column 10; an operator or ] is expected", {{"doc", doc}});
  expect_fault("i[j] < 3", "unexpected '[' at column 2; an operator or the end is expected");
  expect_fault("0 <= j <= i", "comparisons do not chain at column 8; write 0 <= j && j <= i");
  expect_fault("i == j == 0", "comparisons do not chain at column 8; write i == j && j == 0");
}

TEST(MaskExpressionFaults, Types) {
  expect_fault("j", "the expression is a number, but a mask must be a condition");
  expect_score_fault(
      "s > 0",
      "the expression is a condition, but a score must be a number, such as where(condition, s, -inf)");
  expect_fault("j && true", "'&&' at column 3 needs conditions, but its left side is a number");
  expect_fault("true or j", "'||' at column 6 needs conditions, but its right side is a number");
  expect_fault("(i < j) + 1 < 2", "'+' at column 9 needs numbers, but its left side is a condition");
  expect_fault("i < true", "'<' at column 3 needs numbers, but its right side is a condition");
  expect_fault("i < j == 3", "'==' at column 7 compares a condition with a number");
  expect_fault("!i", "'!' at column 1 needs a condition, but has a number");
  expect_fault("not i", "'not' at column 1 needs a condition, but has a number");
  expect_fault("-true", "'-' at column 1 needs a number, but has a condition");
  expect_fault("i ? true : false", "'?' at column 3 needs a condition before it, but has a number");
  expect_fault("true ? i : false", "'?' at column 6 chooses between a number and a condition");
  expect_fault("min(i, true) < 3", "value 2 of min at column 1 is a condition, but must be a number");
  expect_fault("where(i, j, 1) < 3", "value 1 of where at column 1 is a number, but must be a condition");
  expect_fault("where(true, j, true) < 3",
               "value 3 of where at column 1 is a condition, but must be a number");
}

TEST(MaskExpressionFaults, Indices) {
  const Tensor doc = Tensor(heed::Dims{100}, heed::DType::f32);
  const Arrays arrays{{"doc", doc}};
  expect_fault("doc[i - 1] == 0",
               "the index of doc[i - 1] at column 1 goes from -1 to 98, but doc has 100 elements", arrays);
  expect_fault("doc[i + 1] == 0",
               "the index of doc[i + 1] at column 1 goes from 1 to 100, but doc has 100 elements", arrays);
  expect_fault("doc[i / 2] == 0",
               "the index of doc[...] at column 1 may not be a whole number; // divides to a whole number",
               arrays);
  expect_fault("doc[i < 2] == 0", "the index of doc[...] at column 1 is a condition", arrays);
  expect_fault("doc[i // j] == 0", "the bounds of the index of doc[...] at column 1 are unknown", arrays);
  expect_score_fault("doc[floor(s)]", "the index of doc[...] at column 1 uses s, whose bounds are unknown",
                     arrays);
  expect_fault("j < h", "h is used at column 5, but no array indexed by h says how many heads there are");
  expect_fault("doc[b + 1] < h",
               "b is used at column 5, but no array indexed by b says how many batch entries there are",
               arrays);
  const Tensor two = Tensor::from<float>({0, 1}, {2});
  expect_fault("doc[h] < two[h]", "doc and two are both indexed by h, but have 100 and 2 elements",
               {{"doc", doc}, {"two", two}});
}

TEST(MaskExpressionFaults, Arguments) {
  const Tensor doc = Tensor::from<float>({0, 1}, {2});
  const Tensor table = Tensor(heed::Dims{2, 3}, heed::DType::f32);
  const Tensor large = Tensor::from<std::int64_t>({(std::int64_t{1} << 53) + 1}, {1});
  EXPECT_EQ(mask_fault("true", {{"i", doc}}),
            "array 'i' of a mask expression has a name that means something else in the language");
  for (const char* name : {"2", "", "a-b", "\xc3\xa9"})
    EXPECT_EQ(mask_fault("true", {{"doc", doc}, {name, doc}}),
              "the name of array 1 of a mask expression must be letters, digits and _, no digit first");
  expect_mask("_Doc2[i]\t==\r\nDOC[j]", [](std::int64_t i, std::int64_t j) { return i == j; }, 2, 2,
              {{"_Doc2", doc}, {"DOC", doc}});
  EXPECT_EQ(mask_fault("true", {{"doc", doc}, {"doc", doc}}),
            "array 'doc' of a mask expression is given twice");
  EXPECT_EQ(score_fault("s", {{"t", table}}),
            "array 't' of a score expression has shape [2, 3], but must have one axis");
  EXPECT_EQ(mask_fault("n[0] < i", {{"n", large}}),
            "array 'n' of an expression holds 9007199254740993, but whole numbers must be within 2^53");
  EXPECT_EQ(message_of([] { (void)SparseMask::expression("j <= i", -1, 3); }),
            "query_length of a mask expression is -1, but must be from 0 to 2^32");
  EXPECT_EQ(message_of([] { (void)SparseMask::expression("j <= i", 3, std::int64_t{1} << 40); }),
            "key_length of a mask expression is 1099511627776, but must be from 0 to 2^32");
}

std::string repeated(const std::string& text, std::size_t count, std::string all = {}) {
  for (; count > 0; --count) all += text;
  return all;
}

std::string in_brackets(std::size_t count) {
  return repeated(")", count, repeated("(", count).append("true"));
}

TEST(MaskExpressionFaults, Limits) {
  EXPECT_EQ(mask_fault(std::string(4097, ' ')),
            "mask expression has 4097 bytes, but at most 4096 are allowed");
  EXPECT_EQ(mask_fault(std::string(4092, ' ') + "true"), "no error");
  EXPECT_EQ(mask_fault(in_brackets(64)), "no error");
  EXPECT_EQ(mask_fault(in_brackets(65)),
            quoted("mask", repeated(")", 46, repeated("(", 50, "...").append("true")).append("..."),
                   "nested deeper than 64 at column 66"));
  EXPECT_EQ(mask_fault(repeated("!", 64).append("true")), "no error");
  const std::string deep = repeated("!", 65).append("true");
  EXPECT_EQ(mask_fault(deep), quoted("mask", deep, "nested deeper than 64 at column 65"));
  EXPECT_EQ(score_fault(repeated("+s", 127, "s")), "no error");
  EXPECT_EQ(score_fault(repeated("+s", 128, "s")), quoted("score", repeated("+s", 49, "s").append("+..."),
                                                          "more than 256 values and operators at column 1"));
  // Constants that are folded while parsing count too.
  EXPECT_NE(score_fault(repeated("+1", 128, "s")), "no error");
  EXPECT_NE(score_fault(repeated("+1", 128, "1")), "no error");
}

// Any text is harmless; if it parses, it works.
TEST(MaskExpressionFaults, AnyTextIsReadOrRefused) {
  const std::vector<std::string> words{
      "b",   "h",  "i",    "j", "s",  "doc[", "]",  "(",   ")", "min(", "where(", ",",     "+",   "-", "*",
      "/",   "//", "%",    "<", "==", "&&",   "||", "not", "!", "?",    ":",      "1",     "0.5", "i", "true",
      "inf", "\n", "\xff", "j", "<=", "i]",   "j]", "(",   ")", "i",    "j",      "doc[i", "]",   " "};
  const Tensor doc = Tensor(heed::Dims{8}, heed::DType::f32);
  const Arrays arrays{{"doc", doc}};
  std::mt19937_64 random(3);
  int read = 0;
  for (std::uint64_t n = share_of(30000); n-- > 0;) {
    std::string text;
    for (std::uint64_t count = 1 + random() % 8; count-- > 0;)
      text += words[random() % words.size()] + (random() % 2 ? " " : "");
    try {
      const SparseMask mask = SparseMask::expression(text, 8, 8, arrays);
      (void)row_of(mask, 0, 0, 3, 0, 8);
      (void)part_of(mask).coverage({0, 0, 0, 8, 0, 8});
      ++read;
    } catch (const heed::Error& error) {
      EXPECT_EQ(error.code(), heed::ErrorCode::invalid_argument);
    }
    try {
      const ScoreMod mod = ScoreMod::expression(text, arrays);
      mod.part()->check(8, 8, 8, 8);
      double score = 1, slope = 0;
      mod.part()->apply({0, 0, 3, 4, 5}, &score, &slope);
      ++read;
    } catch (const heed::Error& error) {
      EXPECT_EQ(error.code(), heed::ErrorCode::invalid_argument);
    }
  }
  EXPECT_GT(read, 0);
}

}  // namespace
