#define HEED_ISA amx_f16
#define HEED_PARTS_OF f16
#include "attention/isa/simd_avx512bf16.hpp"
//
#include "attention/isa/tiles_amx.hpp"
//
#include "attention/isa/row_bits_avx512.hpp"
//
#include "attention/isa/target.hpp"
#include "attention/isa/units.hpp"

namespace heed::detail::cpu {
Kernels amx_f16_kernels() { return amx_f16::make_kernels("amx_f16"); }
}  // namespace heed::detail::cpu
