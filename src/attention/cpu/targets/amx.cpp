#define HEED_ISA amx
#include "attention/cpu/targets/simd_avx512bf16.hpp"
//
#include "attention/cpu/targets/tiles_amx.hpp"
//
#include "attention/cpu/kernel/target.hpp"
#include "attention/cpu/targets/units.hpp"

namespace heed::detail::cpu {
Kernels amx_kernels() { return amx::make_kernels("amx"); }
}  // namespace heed::detail::cpu
