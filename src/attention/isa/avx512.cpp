#define HEED_ISA avx512
#include "attention/isa/simd_bytes_avx512.hpp"
//
#include "attention/isa/target.hpp"
#include "attention/isa/units.hpp"

namespace heed::detail::cpu {
Kernels avx512_kernels() { return avx512::make_kernels("avx512"); }
}  // namespace heed::detail::cpu
