#define HEED_ISA avx512bf16_tiles
#include "attention/cpu/targets/simd_avx512bf16.hpp"
//
#include "attention/cpu/targets/tiles_dot.hpp"
//
#include "attention/cpu/kernel/target.hpp"
#include "attention/cpu/targets/units.hpp"

namespace heed::detail::cpu {
Kernels avx512bf16_tiles_kernels() { return avx512bf16_tiles::make_kernels("avx512bf16_tiles"); }
}  // namespace heed::detail::cpu
