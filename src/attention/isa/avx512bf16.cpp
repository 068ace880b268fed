#define HEED_ISA avx512bf16
#include "attention/isa/simd_avx512bf16.hpp"
//
#include "attention/isa/target.hpp"
#include "attention/isa/units.hpp"

namespace heed::detail::cpu {
Kernels avx512bf16_kernels() { return avx512bf16::make_kernels("avx512bf16"); }
}  // namespace heed::detail::cpu
