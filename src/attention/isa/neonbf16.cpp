#define HEED_ISA neonbf16
#include "attention/isa/simd_neon_wide.hpp"
//
#include "attention/isa/tiles_bfmmla.hpp"
//
#include "attention/isa/target.hpp"
#include "attention/isa/units.hpp"

namespace heed::detail::cpu {
Kernels neonbf16_kernels() { return neonbf16::make_kernels("neonbf16"); }
}  // namespace heed::detail::cpu
