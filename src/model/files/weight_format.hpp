// Storage formats of weights, and their conversion to f32.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "attention/kernels/shared/arguments.hpp"
#include "heed/dtype.hpp"

namespace heed::detail {

/// Numbers are stored in consecutive blocks. A block of `values` numbers takes `bytes` bytes.
struct WeightFormat {
  std::string_view name;
  std::int64_t values = 1;
  std::int64_t bytes = 4;
  std::int64_t alignment = 4;  ///< required of `from`
  /// Converts `count` numbers. nullptr for ggml's block formats.
  void (*read)(const void* from, std::int64_t count, float* to) = nullptr;
  /// ggml's block format.
  std::optional<cpu::BlockKind> block{};
};

extern const WeightFormat kStoredF32, kStoredF16, kStoredBf16;

/// This processor's kernels for a block format.
[[nodiscard]] const cpu::BlockProducts& block_products(cpu::BlockKind kind);

/// Converts `count` numbers, a multiple of the block's numbers, to f32.
void read_numbers(const WeightFormat& format, const void* from, std::int64_t count, float* to);

/// The format for f32, f16 and bf16; nullptr for other types.
[[nodiscard]] const WeightFormat* weight_format_of(DType dtype);

/// The size of `count` numbers in bytes; `count` is a multiple of the block's numbers.
[[nodiscard]] inline std::int64_t bytes_of(const WeightFormat& format, std::int64_t count) {
  return count / format.values * format.bytes;
}

/// Blocks of 32 numbers: x = d q, or x = d q + m with a least value m (Q4_1, Q5_1). IQ4_NL and MXFP4 look
/// 4-bit codes up in a table; MXFP4's scale is a power of two (Open Compute Project, Microscaling
/// Formats 1.0, 2023).
extern const WeightFormat kStoredQ4_0, kStoredQ4_1, kStoredQ5_0, kStoredQ5_1, kStoredQ8_0, kStoredIq4Nl,
    kStoredMxfp4;
/// Blocks of 256 numbers, in runs of 16 or 32 with small scales s of their own: x = d s q - m l with least
/// values l (Q2_K, Q4_K, Q5_K), or x = d s q (Q3_K, Q6_K, IQ4_XS).
extern const WeightFormat kStoredQ2K, kStoredQ3K, kStoredQ4K, kStoredQ5K, kStoredQ6K, kStoredIq4Xs;

}  // namespace heed::detail
