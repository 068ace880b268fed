// Vectors of four floats by NEON.
#pragma once

#include "attention/isa/simd_four_neon.hpp"
#include "attention/isa/simd_no_bf16_dot.hpp"
#include "attention/isa/simd_no_pairs.hpp"

namespace heed::detail::HEED_ISA {

inline constexpr int kRegisters = 32;

}  // namespace heed::detail::HEED_ISA
