#define HEED_ISA plain
#include "attention/cpu/simd_plain.hpp"
//
#include "attention/cpu/kernel.hpp"
#include "attention/cpu/units.hpp"

namespace heed::detail::cpu {
Kernels plain_kernels() { return plain::make_kernels("plain"); }
}  // namespace heed::detail::cpu
