// What becomes of scores, in words or as a function: s' = f(s, b, h, i, j), after scale and softcap and
// before bias, ALiBi and masks (FlexAttention's score_mod). i and j count in the tensors.
#pragma once

#include <cmath>
#include <compare>
#include <concepts>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "heed/export.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// Some scores of a row: of keys [key_begin, key_end).
struct ScoreRow {
  std::int64_t batch, head, row, key_begin, key_end;
};

/// What a ScoreMod does. A class of your own may stand behind one.
class HEED_API ScoreFunction {
 public:
  ScoreFunction() = default;
  virtual ~ScoreFunction();
  ScoreFunction(const ScoreFunction&) = delete;
  ScoreFunction& operator=(const ScoreFunction&) = delete;

  /// scores[k], of key key_begin + k, becomes f(scores[k], …), and slopes[k] the derivative df/ds there;
  /// `slopes` may be null. The slope of a key that f forbids is 0. Any number of threads may call it at once.
  virtual void apply(const ScoreRow& where, float* scores, float* slopes) const = 0;
  virtual void apply(const ScoreRow& where, double* scores, double* slopes) const = 0;
  /// Throws Error (invalid_argument) where f cannot be applied to scores of these sizes. Once before a call.
  virtual void check(std::int64_t batch, std::int64_t heads, std::int64_t query_length,
                     std::int64_t key_length) const;
  /// The expression and its arrays, for files; a compiled function has none.
  [[nodiscard]] virtual std::string_view text() const;
  [[nodiscard]] virtual std::vector<std::pair<std::string, Tensor>> arrays() const;
};

namespace detail {

/// A number and its derivative by the score. What is made of both by + - * / and the functions below has the
/// right derivative; comparisons look at the number. T is float or double.
template <class T>
struct Dual {
  T value = 0;
  T slope = 0;

  Dual() = default;
  Dual(T of_value, T of_slope) : value(of_value), slope(of_slope) {}
  template <class Number>
  requires std::is_arithmetic_v<Number> Dual(Number constant)  // NOLINT(google-explicit-constructor)
      : value(static_cast<T>(constant)) {}

  friend Dual operator+(Dual a) { return a; }
  friend Dual operator-(Dual a) { return {-a.value, -a.slope}; }
  friend Dual operator+(Dual a, Dual b) { return {a.value + b.value, a.slope + b.slope}; }
  friend Dual operator-(Dual a, Dual b) { return {a.value - b.value, a.slope - b.slope}; }
  friend Dual operator*(Dual a, Dual b) { return {a.value * b.value, a.slope * b.value + a.value * b.slope}; }
  friend Dual operator/(Dual a, Dual b) {
    const T quotient = a.value / b.value;
    return {quotient, (a.slope - quotient * b.slope) / b.value};
  }
  Dual& operator+=(Dual b) { return *this = *this + b; }
  Dual& operator-=(Dual b) { return *this = *this - b; }
  Dual& operator*=(Dual b) { return *this = *this * b; }
  Dual& operator/=(Dual b) { return *this = *this / b; }
  friend bool operator==(Dual a, Dual b) { return a.value == b.value; }
  friend auto operator<=>(Dual a, Dual b) { return a.value <=> b.value; }

  friend Dual abs(Dual a) { return a.value < 0 ? -a : a.value > 0 ? a : Dual(a.value, 0); }
  friend Dual min(Dual a, Dual b) { return b.value < a.value ? b : a; }
  friend Dual max(Dual a, Dual b) { return a.value < b.value ? b : a; }
  friend Dual floor(Dual a) { return {std::floor(a.value), 0}; }
  friend Dual sqrt(Dual a) {
    const T root = std::sqrt(a.value);
    return {root, a.slope / (2 * root)};
  }
  friend Dual exp(Dual a) {
    const T power = std::exp(a.value);
    return {power, a.slope * power};
  }
  friend Dual log(Dual a) { return {std::log(a.value), a.slope / a.value}; }
  friend Dual tanh(Dual a) {
    const T bent = std::tanh(a.value);
    return {bent, a.slope * (1 - bent * bent)};
  }
};

template <class F>
class FunctionScoreMod final : public ScoreFunction {
 public:
  explicit FunctionScoreMod(F f) : f_(std::move(f)) {}
  void apply(const ScoreRow& where, float* scores, float* slopes) const override {
    each(where, scores, slopes);
  }
  void apply(const ScoreRow& where, double* scores, double* slopes) const override {
    each(where, scores, slopes);
  }

 private:
  template <class T>
  void each(const ScoreRow& where, T* scores, T* slopes) const {
    for (std::int64_t j = where.key_begin; j < where.key_end; ++j, ++scores) {
      if (slopes == nullptr) {
        *scores = static_cast<T>(f_(*scores, where.batch, where.head, where.row, j));
        continue;
      }
      const Dual<T> score = f_(Dual<T>(*scores, 1), where.batch, where.head, where.row, j);
      *scores = score.value;
      *slopes++ = score.value == -std::numeric_limits<T>::infinity() ? 0 : score.slope;
    }
  }

  F f_;
};

}  // namespace detail

/// What becomes of a score. A value: copies share what it holds. One that results in -inf forbids the key.
class HEED_API ScoreMod {
 public:
  /// Leaves scores as they are.
  ScoreMod() = default;

  /// A number of s, b, h, i and j, as `s + bias[j - i + 127]` (docs/masks.md has the language). `arrays` are
  /// its names: [n] numbers or bools of any dtype, copied. Throws Error (invalid_argument) that quotes the
  /// place of a mistake; that an index can leave its array shows when lengths are known.
  [[nodiscard]] static ScoreMod expression(std::string_view text,
                                           std::span<const std::pair<std::string, TensorView>> arrays = {});

  /// f(s, b, h, i, j), compiled where this is called, and called by several threads at once. s is a float or
  /// double, and where a derivative is needed a detail::Dual of it; f is a template, or a lambda of `auto`:
  ///
  ///   ScoreMod::function([](auto s, std::int64_t, std::int64_t, std::int64_t i, std::int64_t j) {
  ///     using std::tanh;
  ///     return i - j < 64 ? s : 20 * tanh(s / 20);
  ///   });
  ///
  /// Both sides of ?: have one type where each comes from s; else write decltype(s)(…) around a constant. Of
  /// functions there are abs, min, max, floor, sqrt, exp, log and tanh.
  template <class F>
  [[nodiscard]] static ScoreMod function(F f) {
    static_assert(
        std::is_invocable_v<const F&, double, std::int64_t, std::int64_t, std::int64_t, std::int64_t>,
        "a score function is called as f(s, b, h, i, j)");
    return ScoreMod(std::make_shared<const detail::FunctionScoreMod<F>>(std::move(f)));
  }

  [[nodiscard]] bool is_empty() const noexcept { return part_ == nullptr; }

  /// For the library's own use.
  explicit ScoreMod(std::shared_ptr<const ScoreFunction> part) : part_(std::move(part)) {}
  [[nodiscard]] const ScoreFunction* part() const noexcept { return part_.get(); }

 private:
  std::shared_ptr<const ScoreFunction> part_;
};

}  // namespace heed
