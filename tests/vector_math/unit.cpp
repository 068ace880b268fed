// The functions of one kernel unit, over arrays. Built once for each instruction set: HEED_ISA is a namespace
// of its own, so that nothing here can stand in for a part of the library's unit, and HEED_SIMD its vector
// types.
#include HEED_SIMD
//
#include "attention/cpu/kernel/score_modifiers.hpp"
#include "vector_math/units.hpp"

namespace heed::test {
namespace {

using namespace detail::HEED_ISA;  // NOLINT(google-build-using-namespace)

void exp2_bounded_of(const float* x, std::size_t count, float shift, float* to) {
  for (std::size_t i = 0; i < count; i += kLanes)
    store(to + i, exp2_bounded(load(x + i), splat(kRound - shift)));
}

void exp2_flushed_of(const float* x, std::size_t count, float shift, float* to) {
  for (std::size_t i = 0; i < count; i += kLanes)
    store(to + i, exp2_flushed(load(x + i), splat(kRound - shift), splat(shift + kSmallestExponent)));
}

void tanh_of_all(const float* x, std::size_t count, float* to) {
  for (std::size_t i = 0; i < count; i += kLanes) store(to + i, tanh_of(load(x + i)));
}

std::uint64_t nonzero_words(const std::uint64_t* words) { return bits_of_nonzero(words); }

std::uint32_t greater_lanes(const float* x, const float* y) { return bits_of(greater(load(x), load(y))); }

}  // namespace

VectorMath HEED_UNIT() {
  return {exp2_bounded_of, exp2_flushed_of, tanh_of_all, kGainExact, nonzero_words, greater_lanes, kLanes};
}

}  // namespace heed::test
