#define HEED_ISA neon
#include "attention/isa/simd_neon.hpp"
//
#include "attention/isa/target.hpp"
#include "attention/isa/units.hpp"

namespace heed::detail::cpu {
Kernels neon_kernels() { return neon::make_kernels("neon"); }
}  // namespace heed::detail::cpu
