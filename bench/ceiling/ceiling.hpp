// Peak rates of this machine, measured next to the timed calls and at the same time. Shares of these rates
// are meaningful even if clock and memory are shared with other processes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "heed/tensor.hpp"

namespace heed::ceiling {

/// Resources that can limit a call.
enum class Limit {
  f32_multiply_add,  ///< flop/s
  bf16_dot,          ///< flop/s, f32 accumulation
  bf16_tiles,        ///< flop/s of matrix tiles, f32 accumulation
  f32_tiles,         ///< f32 from bf16 matrix tiles: each product takes six tile products
  memory_read,       ///< byte/s, from memory
  memory_write,      ///< byte/s, to memory
};

/// The arithmetic limit of a call with this dtype and instruction set (AttentionResult::isa). bf16 uses tiles
/// or dot products if the processor has them and they are faster; otherwise the limit is f32_multiply_add.
[[nodiscard]] Limit arithmetic_of(DType dtype, std::string_view isa);

/// "f32 FMA (avx512)", "memory read", …
[[nodiscard]] std::string name_of(Limit limit, std::string_view isa);

/// A size that no cache holds: four times the last cache, at least 256 MiB and at most 2 GiB.
[[nodiscard]] std::int64_t uncached_bytes();

/// Measures limits in bursts of a few milliseconds. Other work may disturb a burst, so keep the best of
/// several.
class Meter {
 public:
  /// Flop/s or byte/s of one burst on `threads` threads of heed::parallel_for.
  [[nodiscard]] double burst(Limit limit, std::string_view isa, int threads);

 private:
  [[nodiscard]] double read(int threads);
  [[nodiscard]] double write(int threads);
  std::byte* memory();

  Tensor memory_;  // allocated on first use
  bool streams_ = false;
};

}  // namespace heed::ceiling
