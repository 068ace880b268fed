#define HEED_ISA avx2
#include "attention/cpu/targets/simd_avx2.hpp"
//
#include "attention/cpu/kernel/target.hpp"
#include "attention/cpu/targets/units.hpp"

namespace heed::detail::cpu {
Kernels avx2_kernels() { return avx2::make_kernels("avx2"); }
}  // namespace heed::detail::cpu
