#define HEED_ISA amx
#include "attention/isa/simd_avx512bf16.hpp"
//
#include "attention/isa/tiles_amx.hpp"
//
#include "attention/isa/row_bits_avx512.hpp"
//
#include "attention/isa/target.hpp"
#include "attention/isa/units.hpp"

namespace heed::detail::cpu {
Kernels amx_kernels() { return amx::make_kernels("amx"); }
}  // namespace heed::detail::cpu
