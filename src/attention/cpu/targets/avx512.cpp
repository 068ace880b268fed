#define HEED_ISA avx512
#include "attention/cpu/targets/simd_avx512.hpp"
//
#include "attention/cpu/kernel/target.hpp"
#include "attention/cpu/targets/units.hpp"

namespace heed::detail::cpu {
Kernels avx512_kernels() { return avx512::make_kernels("avx512"); }
}  // namespace heed::detail::cpu
