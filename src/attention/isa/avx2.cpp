#define HEED_ISA avx2
#include "attention/isa/simd_avx2.hpp"
//
#include "attention/isa/target.hpp"
#include "attention/isa/units.hpp"

namespace heed::detail::cpu {
Kernels avx2_kernels() { return avx2::make_kernels("avx2"); }
}  // namespace heed::detail::cpu
