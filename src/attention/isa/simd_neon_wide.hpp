// Vectors of sixteen floats by NEON.
#pragma once

#define HEED_VECTORS HEED_ISA::four
#include "attention/isa/simd_four_neon.hpp"
//
#include "attention/isa/simd_wide.hpp"
