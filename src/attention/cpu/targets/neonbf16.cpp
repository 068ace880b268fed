#define HEED_ISA neonbf16
#include "attention/cpu/targets/simd_neon_wide.hpp"
//
#include "attention/cpu/targets/tiles_bfmmla.hpp"
//
#include "attention/cpu/kernel/target.hpp"
#include "attention/cpu/targets/units.hpp"

namespace heed::detail::cpu {
Kernels neonbf16_kernels() { return neonbf16::make_kernels("neonbf16"); }
}  // namespace heed::detail::cpu
