#define HEED_ISA amx_emulated
#include "attention/cpu/targets/simd_emulated.hpp"
//
#include "attention/cpu/targets/tiles_emulated.hpp"
//
#include "attention/cpu/kernel/target.hpp"
#include "attention/cpu/targets/units.hpp"

namespace heed::detail::cpu {
Kernels amx_emulated_kernels() { return amx_emulated::make_kernels("amx_emulated"); }
}  // namespace heed::detail::cpu
