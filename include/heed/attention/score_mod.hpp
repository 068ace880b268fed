// Score modifications, as an expression or a function: s' = f(s, b, h, i, j), applied after scale and softcap
// and before bias, ALiBi and masks (FlexAttention's score_mod). i and j are tensor indices.
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

/// The scores of one row for keys [key_begin, key_end).
struct ScoreRow {
  std::int64_t batch, head, row, key_begin, key_end;
};

/// The interface behind a ScoreMod. You can implement it yourself.
class HEED_API ScoreFunction {
 public:
  ScoreFunction() = default;
  virtual ~ScoreFunction();
  ScoreFunction(const ScoreFunction&) = delete;
  ScoreFunction& operator=(const ScoreFunction&) = delete;

  /// Replaces scores[k], the score of key key_begin + k, by f(scores[k], …), and writes the derivative df/ds
  /// to slopes[k]. `slopes` may be null. If f forbids a key, its slope is 0. Must allow concurrent
  /// calls. It may call heed itself.
  virtual void apply(const ScoreRow& where, float* scores, float* slopes) const = 0;
  virtual void apply(const ScoreRow& where, double* scores, double* slopes) const = 0;
  /// Throws Error (invalid_argument) if f cannot be applied to scores of these sizes. Runs once before a
  /// call.
  virtual void check(std::int64_t batch, std::int64_t heads, std::int64_t query_length,
                     std::int64_t key_length) const;
  /// The expression and its arrays, for writing to files; empty for a compiled function.
  [[nodiscard]] virtual std::string_view text() const;
  [[nodiscard]] virtual std::vector<std::pair<std::string, Tensor>> arrays() const;
};

namespace detail {

/// A number and its derivative with respect to the score. The operators + - * / and the functions below
/// propagate the derivative; comparisons use the number. T is float or double.
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

/// A function applied to every score. Copies share its state. A result of -inf forbids the key.
class HEED_API ScoreMod {
 public:
  /// Leaves scores as they are.
  ScoreMod() = default;

  /// An expression of s, b, h, i and j, such as `s + bias[j - i + 127]` (language: docs/masks.md). `arrays`
  /// holds the arrays that it names: [n] numbers or bools of any dtype, copied. Throws Error
  /// (invalid_argument) that quotes the position of a mistake. Array indices out of range are found later,
  /// when the lengths are known.
  [[nodiscard]] static ScoreMod expression(std::string_view text,
                                           std::span<const std::pair<std::string, TensorView>> arrays = {});

  /// A compiled function f(s, b, h, i, j), called from several threads at once. s is a float or double; where
  /// a derivative is needed, it is a detail::Dual of that type. f is a template or a lambda with an `auto`
  /// parameter:
  ///
  ///   ScoreMod::function([](auto s, std::int64_t, std::int64_t, std::int64_t i, std::int64_t j) {
  ///     using std::tanh;
  ///     return i - j < 64 ? s : 20 * tanh(s / 20);
  ///   });
  ///
  /// Both sides of ?: must have the same type; wrap a constant in decltype(s)(…). Available functions: abs,
  /// min, max, floor, sqrt, exp, log and tanh.
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
