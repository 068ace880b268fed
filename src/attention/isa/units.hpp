// The units of this build, one per instruction set and format.
#pragma once

#include "attention/kernels/shared/arguments.hpp"

namespace heed::detail::cpu {

Kernels amx_kernels();
Kernels amx_emulated_kernels();
Kernels amx_f32_kernels();
Kernels amx_f32_emulated_kernels();
Kernels amx_f16_kernels();
Kernels amx_f16_emulated_kernels();
Kernels avx512_kernels();
Kernels avx512bf16_kernels();
Kernels avx512bf16_tiles_kernels();
Kernels avx2_kernels();
Kernels neon_kernels();
Kernels neonbf16_kernels();
Kernels plain_kernels();

}  // namespace heed::detail::cpu
