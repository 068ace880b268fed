// A multiply-add takes 3 to 6 cycles, and a core starts two to four per cycle. Up to 16 independent sums are
// needed to keep it busy. There are 14, which with both factors fill 16 registers (on NEON 28 of 32). The
// loops are in assembly language: if a compiler spills the sums, it measures a third of the peak.
#include "ceiling/loops.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace heed::ceiling {
namespace {

constexpr int kSums = 14;
constexpr double kFlops = 2;  // per multiply-add

// sum = sum * kFactor + kAddend stays within (0, 1), without overflow or denormals.
constexpr float kFactor = 0.5f;
constexpr float kAddend = 0.25f;

using Four = float __attribute__((vector_size(16)));

// Forces the value into a register and hides it from the optimiser.
void keep(Four& value) {
#if defined(__x86_64__)
  asm volatile("" : "+x"(value));
#elif defined(__aarch64__)
  asm volatile("" : "+w"(value));
#else
  asm volatile("" : "+m"(value));
#endif
}

void multiply_add_baseline(std::int64_t steps) {
  Four x = {kFactor, kFactor, kFactor, kFactor};
  Four y = {kAddend, kAddend, kAddend, kAddend};
  keep(x);
  keep(y);
  Four sum[kSums] = {y, y, y, y, y, y, y, y, y, y, y, y, y, y};
  for (std::int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 14
    for (int s = 0; s < kSums; ++s) sum[s] = sum[s] * x + y;
  }
#pragma GCC unroll 14
  for (int s = 0; s < kSums; ++s) keep(sum[s]);
}

#if defined(__x86_64__)

__attribute__((target("avx2,fma"))) void multiply_add_avx2(std::int64_t steps) {
  const __m256 x = _mm256_set1_ps(kFactor);
  const __m256 y = _mm256_set1_ps(kAddend);
  __m256 s[kSums] = {y, y, y, y, y, y, y, y, y, y, y, y, y, y};
  for (std::int64_t i = 0; i < steps; ++i)
    asm volatile(
        ".irp sum, %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13\n\t"
        "vfmadd213ps %15, %14, \\sum\n\t"
        ".endr"
        : "+x"(s[0]), "+x"(s[1]), "+x"(s[2]), "+x"(s[3]), "+x"(s[4]), "+x"(s[5]), "+x"(s[6]), "+x"(s[7]),
          "+x"(s[8]), "+x"(s[9]), "+x"(s[10]), "+x"(s[11]), "+x"(s[12]), "+x"(s[13])
        : "x"(x), "x"(y));
}

__attribute__((target("avx512f"))) void multiply_add_avx512(std::int64_t steps) {
  const __m512 x = _mm512_set1_ps(kFactor);
  const __m512 y = _mm512_set1_ps(kAddend);
  __m512 s[kSums] = {y, y, y, y, y, y, y, y, y, y, y, y, y, y};
  for (std::int64_t i = 0; i < steps; ++i)
    asm volatile(
        ".irp sum, %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13\n\t"
        "vfmadd213ps %15, %14, \\sum\n\t"
        ".endr"
        : "+v"(s[0]), "+v"(s[1]), "+v"(s[2]), "+v"(s[3]), "+v"(s[4]), "+v"(s[5]), "+v"(s[6]), "+v"(s[7]),
          "+v"(s[8]), "+v"(s[9]), "+v"(s[10]), "+v"(s[11]), "+v"(s[12]), "+v"(s[13])
        : "v"(x), "v"(y));
}

// sum += x0 * y0 + x1 * y1 on 16 pairs of bf16. Products of 2^-64 are too small to change the sums.
__attribute__((target("avx512f"))) void bf16_dot_avx512(std::int64_t steps) {
  const __m512i x = _mm512_set1_epi16(0x2f80);  // 2^-32
  const __m512 y = _mm512_set1_ps(kAddend);
  __m512 s[kSums] = {y, y, y, y, y, y, y, y, y, y, y, y, y, y};
  for (std::int64_t i = 0; i < steps; ++i)
    asm volatile(
        ".irp sum, %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13\n\t"
        "vdpbf16ps %14, %14, \\sum\n\t"
        ".endr"
        : "+v"(s[0]), "+v"(s[1]), "+v"(s[2]), "+v"(s[3]), "+v"(s[4]), "+v"(s[5]), "+v"(s[6]), "+v"(s[7]),
          "+v"(s[8]), "+v"(s[9]), "+v"(s[10]), "+v"(s[11]), "+v"(s[12]), "+v"(s[13])
        : "v"(x));
}

// Matrix tiles: four 16 x 16 results from two operands each, as in the kernels. A tile product is 16 x 16
// sums of 32 products. The operands' bits are random: they draw more power than zeros, and at its power limit
// a processor slows down (Granite Rapids: by up to a fifth).
constexpr int kTiles = 4;
constexpr double kTileFlops = kFlops * 16 * 16 * 32;

void multiply_tiles(std::int64_t steps) {
  struct alignas(64) Configuration {
    std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
    std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  static constexpr Configuration kAll = {};
  alignas(64) std::uint16_t operands[4 * 16 * 32];  // bf16 of either sign, magnitude 1 to 2
  std::uint32_t random = 1;
  for (std::uint16_t& x : operands) {
    random = random * 1664525 + 1013904223;
    x = static_cast<std::uint16_t>((random >> 16 & 0x807f) | 0x3f80);
  }
  const std::int64_t stride = 64;
  asm volatile(
      "ldtilecfg %0\n\t"  // sets all tiles to 0
      "tileloadd (%1,%2,1), %%tmm4\n\t"
      "tileloadd 1024(%1,%2,1), %%tmm5\n\t"
      "tileloadd 2048(%1,%2,1), %%tmm6\n\t"
      "tileloadd 3072(%1,%2,1), %%tmm7" ::"m"(kAll),
      "r"(operands), "r"(stride)
      : "memory");
  for (std::int64_t i = 0; i < steps; ++i)
    asm volatile(
        "tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\t"
        "tdpbf16ps %%tmm7, %%tmm4, %%tmm1\n\t"
        "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n\t"
        "tdpbf16ps %%tmm7, %%tmm5, %%tmm3" ::);
  asm volatile("tilerelease" ::);
}

#elif defined(__aarch64__)

void multiply_add_neon(std::int64_t steps) {
  const float32x4_t x = vdupq_n_f32(kFactor);
  const float32x4_t y = vdupq_n_f32(0x1p-64f);  // products are too small to change the sums
  const float32x4_t z = vdupq_n_f32(kAddend);
  float32x4_t s[2 * kSums] = {z, z, z, z, z, z, z, z, z, z, z, z, z, z,
                              z, z, z, z, z, z, z, z, z, z, z, z, z, z};
  for (std::int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 2
    for (int h = 0; h < 2 * kSums; h += kSums)
      asm volatile(
          ".irp sum, %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13\n\t"
          "fmla \\sum\\().4s, %14.4s, %15.4s\n\t"
          ".endr"
          : "+w"(s[h]), "+w"(s[h + 1]), "+w"(s[h + 2]), "+w"(s[h + 3]), "+w"(s[h + 4]), "+w"(s[h + 5]),
            "+w"(s[h + 6]), "+w"(s[h + 7]), "+w"(s[h + 8]), "+w"(s[h + 9]), "+w"(s[h + 10]), "+w"(s[h + 11]),
            "+w"(s[h + 12]), "+w"(s[h + 13])
          : "w"(x), "w"(y));
  }
}

#endif

}  // namespace

ComputeLoop f32_loop(std::string_view isa) {
#if defined(__x86_64__)
  if (isa.starts_with("avx512") || has_matrix_tiles(isa))
    return {multiply_add_avx512, kFlops * 16 * kSums, "avx512"};
  if (isa.starts_with("avx2")) return {multiply_add_avx2, kFlops * 8 * kSums, "avx2"};
#elif defined(__aarch64__)
  if (isa.starts_with("neon")) return {multiply_add_neon, kFlops * 4 * 2 * kSums, "neon"};
#endif
  (void)isa;
  return {multiply_add_baseline, kFlops * 4 * kSums, "plain"};
}

bool has_matrix_tiles(std::string_view isa) { return isa == "amx" || isa == "amx_f32"; }

// Intel processors start fewer of these than f32 multiply-adds, so f32 is the limit there.
bool has_bf16_dot(std::string_view isa) {
#if defined(__x86_64__)
  return isa.starts_with("avx512") && __builtin_cpu_supports("avx512bf16") && !__builtin_cpu_is("intel");
#else
  (void)isa;
  return false;
#endif
}

ComputeLoop bf16_loop() {
#if defined(__x86_64__)
  return {bf16_dot_avx512, kFlops * 32 * kSums, "avx512bf16"};
#else
  return f32_loop("");
#endif
}

ComputeLoop matrix_tiles_loop() {
#if defined(__x86_64__)
  return {multiply_tiles, kTiles * kTileFlops, "amx"};
#else
  return f32_loop("");
#endif
}

void read_all(const std::byte* memory, std::size_t bytes) {
  constexpr std::size_t kStep = 256;
  Four seen[4] = {};
  for (std::size_t at = 0; at < bytes; at += kStep) {
    const auto* next = reinterpret_cast<const Four*>(memory + at);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) seen[i] += next[i] + next[i + 4] + next[i + 8] + next[i + 12];
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) keep(seen[i]);
}

void write_all(std::byte* memory, std::size_t bytes) {
  Four value = {kFactor, kFactor, kFactor, kFactor};
  keep(value);
  for (std::size_t at = 0; at < bytes; at += 64) {
    auto* next = reinterpret_cast<Four*>(memory + at);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
#if defined(__x86_64__)
      _mm_stream_ps(reinterpret_cast<float*>(next + i), value);
#else
      next[i] = value;
#endif
    }
  }
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace heed::ceiling
