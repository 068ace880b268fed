#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/attention/score_mod.hpp"
#include "heed/tensor.hpp"
#include "random_expression.hpp"
#include "support.hpp"

namespace {

using heed::ScoreMod;
using heed::Tensor;
using heed::TensorView;
using heed::detail::Dual;
using heed::test::message_of;
using heed::test::RandomExpressions;
using heed::test::share_of;

using Arrays = std::vector<std::pair<std::string, TensorView>>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Evaluates a score expression.
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

TEST(ScoreExpression, RandomScoresAreWhatTheirTextSays) {
  int compared = 0, undefined = 0;
  for (std::uint64_t seed = 0; seed < share_of(1500); ++seed) {
    RandomExpressions random(seed, true);
    const RandomExpressions::Number expected = random.number(1 + static_cast<int>(seed % 4));
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
      // Compares only where the function is smooth, so that two step sizes agree.
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
        ++undefined;  // an intermediate value was infinite
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
  // The slope of a forbidden score is 0.
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
  EXPECT_DOUBLE_EQ(dual.value, at(s));
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

// Uses the largest number of registers: each right side waits for the next.
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

}  // namespace
