#define HEED_ISA amx_f32_emulated
#define HEED_PARTS_OF f32
#include "attention/isa/simd_emulated.hpp"
//
#include "attention/isa/tiles_emulated.hpp"
//
#include "attention/isa/target.hpp"
#include "attention/isa/units.hpp"

namespace heed::detail::cpu {
Kernels amx_f32_emulated_kernels() { return amx_f32_emulated::make_kernels("amx_f32_emulated"); }
}  // namespace heed::detail::cpu
