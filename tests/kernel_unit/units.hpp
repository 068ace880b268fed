// Parts of the fused kernel that tests call directly, in one table per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "heed/tensor.hpp"

namespace heed::test {

/// A bit that RowBits took: its number, and the float at its place in the row.
struct TakenBit {
  std::int32_t place;
  float number;
};

/// Functions on arrays of `count` floats, a multiple of 16.
struct VectorMath {
  /// gain * 2^(x - shift), for -125 <= x - shift <= 100
  void (*exp2_bounded)(const float* x, std::size_t count, float shift, float* to);
  /// the same, but 0 for x - shift < -125
  void (*exp2_flushed)(const float* x, std::size_t count, float shift, float* to);
  void (*tanh)(const float* x, std::size_t count, float* to);
  double gain;
  /// Bit i: whether words[i], of eight, is not 0.
  std::uint64_t (*bits_of_nonzero)(const std::uint64_t* words);
  /// Bit i: whether x[i] > y[i], for the `lanes` of one vector.
  std::uint32_t (*bits_of_greater)(const float* x, const float* y);
  int lanes;
  /// Takes all bits of 16 rows of three words, one of each row at a time: [steps][16]. The number is -1 where
  /// a row has none left. nullptr: the unit does not have it.
  std::vector<TakenBit> (*take_row_bits)(const std::uint64_t* words, const float* rows, std::int32_t stride);
};

/// One row of SoftmaxState, summed over its lanes.
struct RowState {
  bool empty = true;
  bool left_out = false;
  float shift = 0, sum = 0, moment = 0, max = 0, rounded = 0, distance = 0;
  std::vector<float> output;
  std::vector<float> list_weights;
  std::vector<std::int32_t> list_keys;
  bool operator==(const RowState&) const = default;
};

/// Softmax states of `rows` rows, with all optional parts, in memory of their own.
struct SoftmaxStates {
  using States = std::vector<std::byte>;
  States (*empty)(std::int64_t rows, std::int64_t value_columns, std::int64_t top_k);
  /// Adds a key to a row as the kernel does: m changes when the score exceeds it by more than 8.
  void (*add_key)(States&, std::int64_t row, float score, const float* value, std::int32_t key);
  void (*leave_out)(States&, std::int64_t row);
  void (*rescale)(States&, std::int64_t row, float shift);
  void (*merge)(States& into, States& from);
  RowState (*read)(const States&, std::int64_t row);
};

/// Packs keys [first, first + count) of a [keys, depth] view as the f32 kernel does, and unpacks them again:
/// [count][depth].
using PackKeys = std::vector<float> (*)(const TensorView& keys, std::int64_t first, std::int64_t count,
                                        float scale);
using PackValues = std::vector<float> (*)(const TensorView& values, std::int64_t first, std::int64_t count);

struct KernelUnit {
  VectorMath math;
  SoftmaxStates states;
  PackKeys pack_keys;
  PackValues pack_values;
  /// c [16][16] += a [16][32] x b [32][16] by matrix tiles, if the unit has them. Elements of a and b are
  /// bf16. b has the layout of tiles: b[2p][n] and b[2p + 1][n] are adjacent.
  void (*multiply_tiles)(const std::uint16_t* a, const std::uint16_t* b, float* c) = nullptr;
};

// Weak: a build has only the units that it tests.
[[gnu::weak]] KernelUnit plain_unit();
[[gnu::weak]] KernelUnit avx2_unit();
[[gnu::weak]] KernelUnit avx512_unit();
[[gnu::weak]] KernelUnit avx512bf16_unit();
[[gnu::weak]] KernelUnit neon_unit();
[[gnu::weak]] KernelUnit neonbf16_unit();
[[gnu::weak]] KernelUnit amx_unit();
[[gnu::weak]] KernelUnit amx_emulated_unit();

/// The unit of an instruction set of this architecture.
inline KernelUnit kernel_unit(std::string_view isa) {
  if (isa.ends_with("emulated")) return amx_emulated_unit();
#if defined(__x86_64__)
  if (isa.starts_with("amx")) return amx_unit();
  return isa == "avx512bf16" ? avx512bf16_unit()
         : isa == "avx512"   ? avx512_unit()
         : isa == "avx2"     ? avx2_unit()
                             : plain_unit();
#else
  return isa == "neonbf16" ? neonbf16_unit() : isa == "neon" ? neon_unit() : plain_unit();
#endif
}

}  // namespace heed::test
