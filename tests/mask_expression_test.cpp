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
#include "heed/mask_mod.hpp"
#include "heed/masks.hpp"
#include "heed/score_mod.hpp"
#include "heed/tensor.hpp"
#include "support.hpp"

namespace {

using heed::ScoreMod;
using heed::SparseMask;
using heed::Tensor;
using heed::TensorView;
using heed::detail::Coverage;
using heed::detail::Dual;
using heed::detail::MaskPart;
using heed::detail::MaskTile;
using heed::test::message_of;
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

// What a score expression makes of a score.
double score_of(std::string_view text, double s, std::int64_t i = 0, std::int64_t j = 0,
                const Arrays& arrays = {}) {
  ScoreMod::expression(text, arrays).part()->apply({0, 0, i, j, j + 1}, &s, nullptr);
  return s;
}

double slope_of(std::string_view text, double s, const Arrays& arrays = {}) {
  double slope = 7;
  ScoreMod::expression(text, arrays).part()->apply({0, 0, 3, 5, 6}, &s, &slope);
  return slope;
}

using Pairs = std::function<bool(std::int64_t, std::int64_t)>;

// Every pair of the mask is as the function says, in rows of all keys and of some; and coverage is certain of
// tiles.
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
  for (const double x :
       {0.0, 0.5, -0.5, 1.0, -1.0, 1e15 + 0.5, -1e15 - 0.5, 4503599627370497.5, -1e300, kInfinity})
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
  // Steps of two through an array.
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

// What is left in `visible` before stays forbidden.
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

// Of a conjunction it is full just where all parts are.
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

// An expression as text, and what it means.
struct Random {
  struct Number {
    std::string text;
    std::function<double(double, double, double)> value;  // of s, i, j
  };
  struct Condition {
    std::string text;
    std::function<bool(double, double, double)> value;
  };

  explicit Random(std::uint64_t seed, bool with_score) : random(seed), score(with_score) {
    for (std::size_t n = 0; n < 150; ++n) array.push_back(static_cast<double>(random() % 9) - 3);
  }
  std::uint64_t below(std::uint64_t n) { return random() % n; }

  Number number(int depth) {
    if (depth == 0 || below(5) == 0) return leaf();
    if (below(8) == 0) return selected(depth);
    if (below(4) == 0) return function(depth);
    const Number a = number(depth - 1), b = number(depth - 1);
    const auto binary = [&](const std::string& symbol, auto f) {
      return Number{
          "(" + a.text + " " + symbol + " " + b.text + ")",
          [f, a, b](double s, double i, double j) { return f(a.value(s, i, j), b.value(s, i, j)); }};
    };
    switch (below(6)) {
      case 0:
        return binary("+", [](double x, double y) { return x + y; });
      case 1:
        return binary("-", [](double x, double y) { return x - y; });
      case 2:
        return binary("*", [](double x, double y) { return x * y; });
      case 3:
        return binary("/", [](double x, double y) { return x / y; });
      case 4:
        return binary("//", [](double x, double y) { return std::floor(x / y); });
      default:
        return binary("%", [](double x, double y) { return x - y * std::floor(x / y); });
    }
  }

  Number leaf() {
    switch (below(score ? 5 : 4)) {
      case 0:
        return {"i", [](double, double i, double) { return i; }};
      case 1:
        return {"j", [](double, double, double j) { return j; }};
      case 2: {
        const double value = static_cast<double>(below(40)) / 4;
        return {std::to_string(value), [value](double, double, double) { return value; }};
      }
      case 3: {
        const std::vector<std::string> places{"i", "j", "j + 20", "abs(i - j)", "j // 3", "i % 7"};
        const std::size_t which = below(places.size());
        return {"a[" + places[which] + "]", [this, which](double, double i, double j) {
                  const double index[] = {i, j, j + 20, std::fabs(i - j), std::floor(j / 3), std::fmod(i, 7)};
                  return array[static_cast<std::size_t>(index[which])];
                }};
      }
      default:
        return {"s", [](double s, double, double) { return s; }};
    }
  }

  Number function(int depth) {
    const Number a = number(depth - 1), b = number(depth - 1);
    const auto one = [&](const std::string& name, auto f) {
      return Number{name + "(" + a.text + ")",
                    [f, a](double s, double i, double j) { return f(a.value(s, i, j)); }};
    };
    const auto two = [&](const std::string& name, auto f) {
      return Number{name + "(" + a.text + ", " + b.text + ")", [f, a, b](double s, double i, double j) {
                      return f(a.value(s, i, j), b.value(s, i, j));
                    }};
    };
    switch (below(9)) {
      case 0:
        return one("abs", [](double x) { return std::fabs(x); });
      case 1:
        return one("sqrt", [](double x) { return std::sqrt(x); });
      case 2:
        return one("exp", [](double x) { return std::exp(x); });
      case 3:
        return one("log", [](double x) { return std::log(x); });
      case 4:
        return one("tanh", [](double x) { return std::tanh(x); });
      case 5:
        return one("floor", [](double x) { return std::floor(x); });
      case 6:
        return one("-", [](double x) { return -x; });
      case 7:
        return two("min",
                   [](double x, double y) { return std::isnan(x) || std::isnan(y) ? NAN : std::min(x, y); });
      default:
        return two("max",
                   [](double x, double y) { return std::isnan(x) || std::isnan(y) ? NAN : std::max(x, y); });
    }
  }

  Number selected(int depth) {
    const Condition c = condition(depth - 1);
    const Number a = number(depth - 1), b = number(depth - 1);
    return {"(" + c.text + " ? " + a.text + " : " + b.text + ")", [c, a, b](double s, double i, double j) {
              return c.value(s, i, j) ? a.value(s, i, j) : b.value(s, i, j);
            }};
  }

  Condition condition(int depth) {
    if (depth > 1 && below(2) == 0) {
      const Condition a = condition(depth - 1), b = condition(depth - 1);
      switch (below(4)) {
        case 0:
          return {"(" + a.text + " && " + b.text + ")",
                  [a, b](double s, double i, double j) { return a.value(s, i, j) && b.value(s, i, j); }};
        case 1:
          return {"(" + a.text + " or " + b.text + ")",
                  [a, b](double s, double i, double j) { return a.value(s, i, j) || b.value(s, i, j); }};
        case 2:
          return {"(" + a.text + " == " + b.text + ")",
                  [a, b](double s, double i, double j) { return a.value(s, i, j) == b.value(s, i, j); }};
        default:
          return {"!" + a.text, [a](double s, double i, double j) { return !a.value(s, i, j); }};
      }
    }
    const int inner = depth > 0 ? depth - 1 : 0;
    const Number a = number(inner), b = number(inner);
    const auto compare = [&](const std::string& symbol, auto f) {
      return Condition{
          "(" + a.text + " " + symbol + " " + b.text + ")",
          [f, a, b](double s, double i, double j) { return f(a.value(s, i, j), b.value(s, i, j)); }};
    };
    switch (below(6)) {
      case 0:
        return compare("<", [](double x, double y) { return x < y; });
      case 1:
        return compare("<=", [](double x, double y) { return x <= y; });
      case 2:
        return compare(">", [](double x, double y) { return x > y; });
      case 3:
        return compare(">=", [](double x, double y) { return x >= y; });
      case 4:
        return compare("==", [](double x, double y) { return x == y; });
      default:
        return compare("!=", [](double x, double y) { return x != y; });
    }
  }

  std::mt19937_64 random;
  bool score;
  std::vector<double> array;
};

TEST(MaskExpression, RandomMasksAreWhatTheirTextSays) {
  constexpr std::int64_t kQueries = 40, kKeys = 90;
  int certain = 0;
  for (std::uint64_t seed = 0; seed < share_of(1500); ++seed) {
    Random random(seed, false);
    const Random::Condition expected = random.condition(1 + static_cast<int>(seed % 4));
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

TEST(ScoreExpression, RandomScoresAreWhatTheirTextSays) {
  int compared = 0, undefined = 0;
  for (std::uint64_t seed = 0; seed < share_of(1500); ++seed) {
    Random random(seed, true);
    const Random::Number expected = random.number(1 + static_cast<int>(seed % 4));
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + expected.text);
    const Tensor array = Tensor::from(std::span<const double>(random.array), {150});
    const ScoreMod mod = ScoreMod::expression(expected.text, Arrays{{"a", array}});
    mod.part()->check(1, 1, 40, 90);
    std::vector<double> scores;
    for (int k = 0; k < 80; ++k) scores.push_back(static_cast<double>(random.below(1000)) / 100 - 5);
    std::vector<double> changed = scores, slopes(80), without_slopes = scores;
    mod.part()->apply({0, 0, 11, 10, 90}, changed.data(), slopes.data());
    mod.part()->apply({0, 0, 11, 10, 90}, without_slopes.data(), nullptr);
    for (std::size_t k = 0; k < 80; ++k) {
      const auto at = [&](double s) { return expected.value(s, 11, static_cast<double>(k) + 10); };
      const double value = at(scores[k]);
      ASSERT_TRUE(changed[k] == value || (std::isnan(changed[k]) && std::isnan(value)))
          << k << ": " << scores[k];
      ASSERT_TRUE(changed[k] == without_slopes[k] || std::isnan(value));
      // Where the function is smooth: two steps agree with one another.
      const double step = 1e-6;
      const double near = (at(scores[k] + step) - at(scores[k] - step)) / (2 * step);
      const double far = (at(scores[k] + 3 * step) - at(scores[k] - 3 * step)) / (6 * step);
      const double left = (at(scores[k]) - at(scores[k] - step / 4)) / (step / 4);
      const double tolerance = 1e-3 * (1 + std::fabs(near)) + 1e-9 * std::fabs(value);
      if (std::fabs(near - far) > tolerance || std::fabs(near - left) > tolerance ||
          !(std::fabs(value) < 1e4))
        continue;
      if (!std::isfinite(near) || !std::isfinite(far) || !std::isfinite(left)) continue;
      ++compared;
      if (std::isnan(slopes[k]))
        ++undefined;  // on the way to a finite number there was an infinite one
      else
        ASSERT_NEAR(slopes[k], near, 3 * tolerance) << k << ": " << scores[k];
    }
  }
  EXPECT_LT(undefined, compared / 50);
}

TEST(ScoreExpression, SlopesOfEveryOperator) {
  EXPECT_EQ(slope_of("s", 2), 1);
  EXPECT_EQ(slope_of("3", 2), 0);
  EXPECT_EQ(slope_of("i + j", 2), 0);
  EXPECT_EQ(slope_of("-s", 2), -1);
  EXPECT_EQ(slope_of("2 * s - s * s", 3), -4);
  EXPECT_EQ(slope_of("1 / s", 2), -0.25);
  EXPECT_EQ(slope_of("s / 4", 2), 0.25);
  EXPECT_EQ(slope_of("s // 4", 2), 0);
  EXPECT_EQ(slope_of("s % 4", 9), 1);
  EXPECT_EQ(slope_of("9 % s", 4), -2);
  EXPECT_EQ(slope_of("floor(s)", 2.5), 0);
  EXPECT_EQ(slope_of("abs(s)", -2), -1);
  EXPECT_EQ(slope_of("abs(s)", 0), 0);
  EXPECT_EQ(slope_of("min(s, 3)", 2), 1);
  EXPECT_EQ(slope_of("min(s, 3)", 4), 0);
  EXPECT_EQ(slope_of("max(s, 2 * s)", 4), 2);
  EXPECT_EQ(slope_of("sqrt(s)", 4), 0.25);
  EXPECT_EQ(slope_of("log(s)", 4), 0.25);
  EXPECT_EQ(slope_of("exp(s)", 1), std::exp(1.0));
  EXPECT_DOUBLE_EQ(slope_of("20 * tanh(s / 20)", 10), 1 - std::tanh(0.5) * std::tanh(0.5));
  EXPECT_EQ(slope_of("s > 1 ? 5 * s : s", 2), 5);
  EXPECT_EQ(slope_of("s > 1 ? 5 * s : s", 0), 1);
  // The slope of what is forbidden is 0.
  EXPECT_EQ(slope_of("s - inf", 2), 0);
  EXPECT_EQ(slope_of("log(s)", 0), 0);
}

TEST(ScoreExpression, FloatScoresOfLongRows) {
  const Tensor bias = Tensor::from<float>({0.5, 1.5, 2.5}, {3});
  const ScoreMod mod = ScoreMod::expression("s * 2 + w[h] - (j - i)", Arrays{{"w", bias}});
  EXPECT_FALSE(mod.is_empty());
  EXPECT_TRUE(ScoreMod().is_empty());
  std::vector<float> scores(1000, 3), slopes(1000);
  mod.part()->apply({0, 1, 5, 7, 1007}, scores.data(), slopes.data());
  for (std::size_t k = 0; k < scores.size(); ++k) {
    EXPECT_EQ(scores[k], 7.5f - (static_cast<float>(k) + 2));
    EXPECT_EQ(slopes[k], 2);
  }
}

TEST(ScoreExpression, IndicesAreCheckedWhenSizesAreKnown) {
  const Tensor bias = Tensor::from<float>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {10});
  const ScoreMod mod = ScoreMod::expression("s + bias[h * 5 + i - j + 2]", Arrays{{"bias", bias}});
  mod.part()->check(1, 2, 3, 3);
  mod.part()->check(1, 2, 0, 3);
  EXPECT_EQ(message_of([&] { mod.part()->check(1, 2, 3, 4); }),
            "score expression \"s + bias[h * 5 + i - j + 2]\": the index of bias[h * 5 + i - j + 2] at "
            "column 5 goes "
            "from -1 to 9, but bias has 10 elements");
}

TEST(ScoreFunction, GivesValueAndSlope) {
  const ScoreMod mod = ScoreMod::function(
      [](auto s, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) -> decltype(s) {
        using std::tanh;
        if (j > i) return -std::numeric_limits<double>::infinity();
        return 20 * tanh(s / 20) + static_cast<decltype(s)>(b + 10 * h);
      });
  std::vector<float> scores{1, 2, 3}, slopes(3);
  mod.part()->check(1, 1, 3, 3);
  mod.part()->apply({1, 2, 4, 3, 6}, scores.data(), slopes.data());
  for (std::size_t k = 0; k < 2; ++k) {
    const double t = std::tanh((static_cast<double>(k) + 1) / 20);
    EXPECT_NEAR(scores[k], 20 * t + 21, 1e-5);
    EXPECT_NEAR(slopes[k], 1 - t * t, 1e-6);
  }
  EXPECT_EQ(scores[2], -kInfinity);
  EXPECT_EQ(slopes[2], 0);
  std::vector<double> wide{1};
  mod.part()->apply({0, 0, 4, 3, 4}, wide.data(), nullptr);
  EXPECT_EQ(wide[0], 20 * std::tanh(0.05));
}

template <class F>
void expect_slope(F f, double s) {
  const auto at = [&](double x) { return static_cast<double>(f(x)); };
  const Dual<double> dual = f(Dual<double>(s, 1));
  EXPECT_EQ(dual.value, at(s));
  EXPECT_NEAR(dual.slope, (at(s + 1e-6) - at(s - 1e-6)) / 2e-6, 1e-6 * (1 + std::fabs(dual.slope)));
}

TEST(ScoreFunction, EveryOperatorHasItsSlope) {
  for (const double s : {0.7, 2.3}) {
    expect_slope([](auto x) { return x * x + 2 * x - 3 / x; }, s);
    expect_slope([](auto x) { return -x / (1 + x); }, s);
    expect_slope(
        [](auto x) {
          using std::exp;
          return exp(-x);
        },
        s);
    expect_slope(
        [](auto x) {
          using std::log;
          return log(x) * x;
        },
        s);
    expect_slope(
        [](auto x) {
          using std::sqrt;
          return sqrt(x);
        },
        s);
    expect_slope(
        [](auto x) {
          using std::abs;
          return abs(1 - x);
        },
        s);
    expect_slope(
        [](auto x) {
          using std::floor;
          return floor(x) + x;
        },
        s);
    expect_slope(
        [](auto x) {
          using std::min;
          return min(x, decltype(x)(1)) * 2;
        },
        s);
    expect_slope(
        [](auto x) {
          using std::max;
          return max(x, decltype(x)(1)) * 2;
        },
        s);
    expect_slope(
        [](auto x) {
          x += 2;
          x *= x;
          x -= 1;
          x /= 3;
          return x > 1 && x != 2 ? x : +x;
        },
        s);
  }
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
// Of a text that the message quotes whole.
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
  expect_fault("j = i", "'=' at column 3 means nothing; equality is ==");
  expect_fault("j < i & true", "'&' at column 7 means nothing; a conjunction is &&");
  expect_fault("j < i | true", "'|' at column 7 means nothing; a disjunction is ||");
  expect_fault("j # i", "'#' at column 3 means nothing");
  expect_fault("2j < i", "'2j' at column 1 is not a number; a product needs a *");
  expect_fault("1.2.3 < i", "'1.2.3' at column 1 is not a number; a product needs a *");
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
  expect_fault("j", "the whole is a number, but a mask must be a condition");
  expect_score_fault(
      "s > 0", "the whole is a condition, but a score must be a number; where(condition, s, -inf) is one");
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
               "the index of doc[...] at column 1 may be no whole number; // divides to whole ones", arrays);
  expect_fault("doc[i < 2] == 0", "the index of doc[...] at column 1 is a condition", arrays);
  expect_fault("doc[i // j] == 0", "no bounds are known of the index of doc[...] at column 1", arrays);
  expect_score_fault("doc[floor(s)]",
                     "the index of doc[...] at column 1 uses s, of which no bounds are known", arrays);
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
  EXPECT_EQ(mask_fault("true", {{"doc", doc}, {"2", doc}}),
            "the name of array 1 of a mask expression must be letters, digits and _, no digit first");
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

std::string repeated(const std::string& text, std::size_t count) {
  std::string all;
  all.reserve(count * text.size());
  for (; count > 0; --count) all += text;
  return all;
}

TEST(MaskExpressionFaults, Limits) {
  EXPECT_EQ(mask_fault(std::string(4097, ' ')),
            "mask expression has 4097 bytes, but at most 4096 are allowed");
  EXPECT_EQ(mask_fault(std::string(4092, ' ') + "true"), "no error");
  EXPECT_EQ(mask_fault(repeated("(", 64) + "true" + repeated(")", 64)), "no error");
  EXPECT_EQ(mask_fault(repeated("(", 65) + "true" + repeated(")", 65)),
            quoted("mask", "..." + repeated("(", 50) + "true" + repeated(")", 46) + "...",
                   "nested deeper than 64 at column 66"));
  EXPECT_EQ(mask_fault(repeated("!", 64) + "true"), "no error");
  EXPECT_EQ(mask_fault(repeated("!", 65) + "true"),
            quoted("mask", repeated("!", 65) + "true", "nested deeper than 64 at column 65"));
  EXPECT_EQ(score_fault("s" + repeated("+s", 127)), "no error");
  EXPECT_EQ(score_fault("s" + repeated("+s", 128)), quoted("score", "s" + repeated("+s", 49) + "+...",
                                                           "more than 256 values and operators at column 1"));
  // What is worked out while it is read counts too.
  EXPECT_NE(score_fault("s" + repeated("+1", 128)), "no error");
  EXPECT_NE(score_fault("1" + repeated("+1", 128)), "no error");
}

// As many registers as there can be: the right side of each waits for the next.
TEST(ScoreExpression, TheDeepestAreEvaluated) {
  std::string text = "s";
  double value = 2, slope = 1;
  for (int n = 0; n < 60; ++n) {
    text = "(s - j - " + text + ")";
    value = 2 - 5 - value;
    slope = 1 - slope;
  }
  EXPECT_EQ(score_of(text, 2, 3, 5), value);
  EXPECT_EQ(slope_of(text, 2), slope);
}

// No text does harm; those that are read work.
TEST(MaskExpressionFaults, AnyTextIsReadOrRefused) {
  const std::vector<std::string> words{
      "b",   "h",  "i",    "j", "s",  "doc[", "]",  "(",   ")", "min(", "where(", ",",     "+",   "-", "*",
      "/",   "//", "%",    "<", "==", "&&",   "||", "not", "!", "?",    ":",      "1",     "0.5", "i", "true",
      "inf", "\n", "\xff", "j", "<=", "i]",   "j]", "(",   ")", "i",    "j",      "doc[i", "]",   " "};
  const Tensor doc = Tensor(heed::Dims{8}, heed::DType::f32);
  const Arrays arrays{{"doc", doc}};
  std::mt19937_64 random(3);
  int read = 0;
  for (std::uint64_t n = share_of(100000); n-- > 0;) {
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
