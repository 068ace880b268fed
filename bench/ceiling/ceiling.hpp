// What this machine can do at most, measured where a call is measured and at the same time, so that a share
// of it means something on a machine whose clock and memory are shared with others.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "heed/tensor.hpp"

namespace heed::ceiling {

/// What can bound a call.
enum class Limit {
  f32_multiply_add,  ///< flop/s
  bf16_dot,          ///< flop/s, f32 accumulation
  bf16_tiles,        ///< the same by matrix tiles
  f32_tiles,         ///< f32 by matrix tiles of bf16: a product takes six
  memory_read,       ///< byte/s, from beyond the caches
  memory_write,      ///< byte/s, to beyond the caches
};

/// The arithmetic that bounds a call of this dtype on an instruction set (AttentionResult::isa): for bf16
/// tiles or dot products where the processor has them and they are faster, else f32_multiply_add.
[[nodiscard]] Limit arithmetic_of(DType dtype, std::string_view isa);

/// "f32 FMA (avx512)", "memory read", …
[[nodiscard]] std::string name_of(Limit limit, std::string_view isa);

/// Memory that no cache holds: several times the last cache, at least 256 MiB.
[[nodiscard]] std::int64_t uncached_bytes();

/// Measures limits in bursts of a few milliseconds. One burst may meet a busy machine: keep the best of some.
class Meter {
 public:
  /// Flop/s or byte/s of one burst on `threads` threads of heed::parallel_for.
  [[nodiscard]] double burst(Limit limit, std::string_view isa, int threads);

 private:
  [[nodiscard]] double read(int threads);
  [[nodiscard]] double write(int threads);
  std::byte* memory();

  Tensor memory_;  // made when it is first read or written
  bool streams_ = false;
};

}  // namespace heed::ceiling
