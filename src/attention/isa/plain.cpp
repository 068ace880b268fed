#define HEED_ISA plain
#include "attention/isa/simd_plain.hpp"
//
#include "attention/isa/target.hpp"
#include "attention/isa/units.hpp"

namespace heed::detail::cpu {
Kernels plain_kernels() { return plain::make_kernels("plain"); }
}  // namespace heed::detail::cpu
