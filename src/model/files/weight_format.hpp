// How the numbers of weights are stored, and how they become f32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "heed/dtype.hpp"

namespace heed::detail {

/// Numbers lie one after the other in blocks of `values` numbers, which take `bytes` bytes.
struct WeightFormat {
  std::string_view name;
  std::int64_t values = 1;
  std::int64_t bytes = 4;
  std::int64_t alignment = 4;  ///< that read() needs of `from`
  /// `count` numbers, a multiple of `values`.
  void (*read)(const void* from, std::int64_t count, float* to) = nullptr;
};

extern const WeightFormat kStoredF32, kStoredF16, kStoredBf16;
/// Those of GGUF: blocks of 32 numbers with a scale (Q8_0, Q4_0); of 256 with scales and least values for
/// each 32 (Q4_K), or scales for each 16 (Q6_K).
extern const WeightFormat kStoredQ8_0, kStoredQ4_0, kStoredQ4K, kStoredQ6K;

/// Of f32, f16 and bf16; nullptr for others.
[[nodiscard]] const WeightFormat* weight_format_of(DType dtype);

/// What `count` numbers take; `count` is a multiple of the block's.
[[nodiscard]] inline std::int64_t bytes_of(const WeightFormat& format, std::int64_t count) {
  return count / format.values * format.bytes;
}

}  // namespace heed::detail
