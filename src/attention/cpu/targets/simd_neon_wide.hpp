// Vectors of sixteen floats by NEON.
#pragma once

#define HEED_VECTORS HEED_ISA::four
#include "attention/cpu/targets/simd_four_neon.hpp"
//
#include "attention/cpu/targets/simd_wide.hpp"
