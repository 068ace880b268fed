#define HEED_ISA plain
#include "attention/cpu/targets/simd_plain.hpp"
//
#include "attention/cpu/kernel/target.hpp"
#include "attention/cpu/targets/units.hpp"

namespace heed::detail::cpu {
Kernels plain_kernels() { return plain::make_kernels("plain"); }
}  // namespace heed::detail::cpu
