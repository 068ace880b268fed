// AVX-512 with bf16 dot products; the compiler's flag for them enables them in simd_avx512.hpp.
#pragma once

#include "attention/cpu/targets/simd_avx512.hpp"
