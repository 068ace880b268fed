// Vectors of four floats on any processor.
#pragma once

#include "attention/isa/simd_four_plain.hpp"
#include "attention/isa/simd_no_bf16_dot.hpp"
#include "attention/isa/simd_no_pairs.hpp"

namespace heed::detail::HEED_ISA {

inline constexpr int kRegisters = 16;

/// Rounds twice here: after the product, and after the sum.
HEED_INLINE Vf mul_add(Vf a, Vf b, Vf c) { return a * b + c; }

}  // namespace heed::detail::HEED_ISA
