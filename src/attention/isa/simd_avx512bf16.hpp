// AVX-512 with bf16 dot products; the compiler's flag for them enables them in simd_avx512.hpp.
#pragma once

#include "attention/isa/simd_avx512.hpp"
