// Random expressions, each as text and as a function of the same meaning.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace heed::test {

/// Draws expressions. They read an array `a` of 150 elements at indices that 40 queries and 90 keys reach.
struct RandomExpressions {
  struct Number {
    std::string text;
    std::function<double(double, double, double)> value;  // of s, i, j
  };
  struct Condition {
    std::string text;
    std::function<bool(double, double, double)> value;
  };

  RandomExpressions(std::uint64_t seed, bool with_score) : random(seed), score(with_score) {
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

}  // namespace heed::test
