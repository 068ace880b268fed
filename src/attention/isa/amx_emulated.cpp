#define HEED_ISA amx_emulated
#include "attention/isa/simd_emulated.hpp"
//
#include "attention/isa/tiles_emulated.hpp"
//
#include "attention/isa/target.hpp"
#include "attention/isa/units.hpp"

namespace heed::detail::cpu {
Kernels amx_emulated_kernels() { return amx_emulated::make_kernels("amx_emulated"); }
}  // namespace heed::detail::cpu
