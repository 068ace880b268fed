// Formulas of a score between the product and the softmax, written once for numbers (score_rules.hpp) and for
// a target's float vectors (kernels/softmax/score_modifiers.hpp). Scores, softcap and slopes share one unit;
// `unit` converts a bias to it. Kernels for one instruction set must share no inline function with code that
// runs anywhere, so these functions are always inlined and leave no symbol.
#pragma once

namespace heed::detail {

/// A score limited to +-c, and its derivative.
template <class Math>
struct Softcapped {
  typename Math::Number score, slope;
};

/// c * tanh(s / c), and 1 - tanh(s / c)^2
template <class Math>
[[gnu::always_inline]] inline auto softcapped(typename Math::Number score, typename Math::Number cap) {
  const auto t = Math::tanh(Math::div(score, cap));
  return Softcapped<Math>{Math::mul(cap, t), Math::sub(Math::one(), Math::mul(t, t))};
}

/// s + bias * unit
template <class Math>
[[gnu::always_inline]] inline auto biased(typename Math::Number score, typename Math::Number bias,
                                          typename Math::Number unit) {
  return Math::mul_add(bias, unit, score);
}

/// s - slope * |gap|, where gap is the row's position minus the key's (Press, Smith, Lewis 2022)
template <class Math>
[[gnu::always_inline]] inline auto with_alibi(typename Math::Number score, typename Math::Number slope,
                                              typename Math::Number gap) {
  return Math::sub(score, Math::mul(slope, Math::absolute(gap)));
}

}  // namespace heed::detail
