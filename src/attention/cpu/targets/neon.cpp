#define HEED_ISA neon
#include "attention/cpu/targets/simd_neon.hpp"
//
#include "attention/cpu/kernel/target.hpp"
#include "attention/cpu/targets/units.hpp"

namespace heed::detail::cpu {
Kernels neon_kernels() { return neon::make_kernels("neon"); }
}  // namespace heed::detail::cpu
