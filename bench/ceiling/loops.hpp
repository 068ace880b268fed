// The innermost loops behind ceiling.hpp. Each does one kind of work at a core's full rate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace heed::ceiling {

/// Multiply-adds on registers only. `run(n)` does n * flops_per_step floating-point operations.
struct ComputeLoop {
  void (*run)(std::int64_t steps);
  double flops_per_step;
  std::string_view isa;
};

/// f32 multiply-adds in the vectors of a kernel unit whose name begins with "amx", "avx512", "avx2" or
/// "neon". Other names use the compiler's baseline, a product and a sum ("plain").
[[nodiscard]] ComputeLoop f32_loop(std::string_view isa);

/// Whether this target uses matrix tiles. Its process has permission to use them.
[[nodiscard]] bool has_matrix_tiles(std::string_view isa);
/// bf16 by matrix tiles (tdpbf16ps). Requires has_matrix_tiles().
[[nodiscard]] ComputeLoop matrix_tiles_loop();

[[nodiscard]] bool has_bf16_dot(std::string_view isa);
/// bf16 dot products with f32 accumulation (vdpbf16ps). Requires has_bf16_dot().
[[nodiscard]] ComputeLoop bf16_loop();

/// Reads every byte; `bytes` is a multiple of 256.
void read_all(const std::byte* memory, std::size_t bytes);

/// Writes every byte, with non-temporal stores if the processor has them; `bytes` is a multiple of 64.
void write_all(std::byte* memory, std::size_t bytes);

}  // namespace heed::ceiling
