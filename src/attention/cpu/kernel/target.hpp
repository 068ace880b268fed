// One target: everything for one instruction set. A target (avx512.cpp, avx2.cpp, …) defines HEED_ISA as
// its namespace, includes its simd_*.hpp (vector types and their operations), and then this file. Nothing
// outside of these headers may be included here but <stdint.h>, <math.h> and intrinsics: an inline function
// of the standard library, compiled for this instruction set, could be the copy that the linker keeps for
// all.
#pragma once

#include "attention/cpu/kernel/arguments.hpp"
#include "attention/cpu/kernel/backward.hpp"
#include "attention/cpu/kernel/forward.hpp"
#include "attention/cpu/kernel/weights_pass.hpp"

namespace heed::detail::HEED_ISA {

inline cpu::Kernels make_kernels(const char* name) {
  return {name,         plan,        plan_weights_pass, reset,    forward,
          weights_pass, scores_pass, backward_bytes,    backward, add_query_parts};
}

}  // namespace heed::detail::HEED_ISA
