// Numbers that are known when a program is compiled, as arguments of functions.
#pragma once

namespace heed::detail::HEED_ISA {

template <int kIndex>
struct Constant {
  static constexpr int value = kIndex;
};
/// Calls f(0), f(1), … with compile-time constants.
template <int kCount, int kFrom = 0, class F>
HEED_INLINE void for_each_constant(F f) {
  if constexpr (kFrom < kCount) {
    f(Constant<kFrom>{});
    for_each_constant<kCount, kFrom + 1>(f);
  }
}

}  // namespace heed::detail::HEED_ISA
