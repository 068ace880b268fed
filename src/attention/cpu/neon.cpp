#define HEED_ISA neon
#include "attention/cpu/simd_neon.hpp"
//
#include "attention/cpu/kernel.hpp"
#include "attention/cpu/units.hpp"

namespace heed::detail::cpu {
Kernels neon_kernels() { return neon::make_kernels("neon"); }
}  // namespace heed::detail::cpu
