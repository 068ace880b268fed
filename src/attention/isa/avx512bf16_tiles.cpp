#define HEED_ISA avx512bf16_tiles
#include "attention/isa/simd_avx512bf16.hpp"
//
#include "attention/isa/tiles_dot.hpp"
//
#include "attention/isa/target.hpp"
#include "attention/isa/units.hpp"

namespace heed::detail::cpu {
Kernels avx512bf16_tiles_kernels() { return avx512bf16_tiles::make_kernels("avx512bf16_tiles"); }
}  // namespace heed::detail::cpu
