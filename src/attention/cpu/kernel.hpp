// One kernel unit: everything for one instruction set. A unit (avx512.cpp, avx2.cpp, …) defines HEED_ISA as
// its namespace, includes its simd_*.hpp (vector types and their operations), and then this file. Nothing
// outside of these headers may be included here but <stdint.h>, <math.h> and intrinsics: an inline function
// of the standard library, compiled for this instruction set, could be the copy that the linker keeps for
// all.
#pragma once

#include "attention/cpu/backward.hpp"
#include "attention/cpu/call.hpp"
#include "attention/cpu/forward.hpp"
#include "attention/cpu/sweep.hpp"

namespace heed::detail::HEED_ISA {

inline cpu::Kernels make_kernels(const char* name) {
  return {name,          plan,         plan_sweep,     reset,    forward,
          sweep_weights, sweep_scores, backward_bytes, backward, add_query_parts};
}

}  // namespace heed::detail::HEED_ISA
