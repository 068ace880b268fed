#define HEED_ISA avx512
#include "attention/cpu/simd_avx512.hpp"
//
#include "attention/cpu/kernel.hpp"
#include "attention/cpu/units.hpp"

namespace heed::detail::cpu {
Kernels avx512_kernels() { return avx512::make_kernels("avx512"); }
}  // namespace heed::detail::cpu
