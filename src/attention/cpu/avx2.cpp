#define HEED_ISA avx2
#include "attention/cpu/simd_avx2.hpp"
//
#include "attention/cpu/kernel.hpp"
#include "attention/cpu/units.hpp"

namespace heed::detail::cpu {
Kernels avx2_kernels() { return avx2::make_kernels("avx2"); }
}  // namespace heed::detail::cpu
