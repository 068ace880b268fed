#define HEED_ISA amx_f32
#define HEED_PARTS_OF f32
#include "attention/isa/simd_avx512bf16.hpp"
//
#include "attention/isa/tiles_amx.hpp"
//
#include "attention/isa/row_bits_avx512.hpp"
//
#include "attention/isa/target.hpp"
#include "attention/isa/units.hpp"

namespace heed::detail::cpu {
Kernels amx_f32_kernels() { return amx_f32::make_kernels("amx_f32"); }
}  // namespace heed::detail::cpu
