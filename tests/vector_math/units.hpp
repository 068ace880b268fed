// The elementary functions of the fused kernel, one table an instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heed::test {

/// Over arrays of `count` floats, a multiple of 16.
struct VectorMath {
  /// gain * 2^(x - shift), for -125 <= x - shift <= 100
  void (*exp2_bounded)(const float* x, std::size_t count, float shift, float* to);
  /// the same, 0 for x - shift < -125
  void (*exp2_flushed)(const float* x, std::size_t count, float shift, float* to);
  void (*tanh)(const float* x, std::size_t count, float* to);
  double gain;
  /// Bit i: words[i] of eight is not 0.
  std::uint64_t (*bits_of_nonzero)(const std::uint64_t* words);
  /// Bit i: x[i] > y[i], for the `lanes` of one vector.
  std::uint32_t (*bits_of_greater)(const float* x, const float* y);
  int lanes;
};

VectorMath plain_math();
VectorMath avx2_math();
VectorMath avx512_math();
VectorMath avx512bf16_math();
VectorMath neon_math();

}  // namespace heed::test
