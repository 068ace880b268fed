#include "model/files/weight_format.hpp"

#include <cstring>

#include "attention/isa/dispatch.hpp"

namespace heed::detail {
namespace {

constexpr std::int64_t kSmallBlock = 32, kLargeBlock = 256;

float half_at(const std::uint8_t* from) {
  return to_float(Float16{static_cast<std::uint16_t>(from[0] | from[1] << 8)});
}

void read_f32(const void* from, std::int64_t count, float* to) {
  std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
}
void read_f16(const void* from, std::int64_t count, float* to) {
  cpu::kernels().all().products.widen_f16(static_cast<const std::uint16_t*>(from), count, to);
}
void read_bf16(const void* from, std::int64_t count, float* to) {
  cpu::kernels().all().products.widen_bf16(static_cast<const std::uint16_t*>(from), count, to);
}

// A scale d in f16 and 32 signed bytes q; the numbers are d q.
void read_q8_0(const void* from, std::int64_t count, float* to) {
  const auto* block = static_cast<const std::uint8_t*>(from);
  for (; count > 0; count -= kSmallBlock, block += kStoredQ8_0.bytes, to += kSmallBlock) {
    const float scale = half_at(block);
    for (std::int64_t i = 0; i < kSmallBlock; ++i)
      to[i] = scale * static_cast<float>(static_cast<std::int8_t>(block[2 + i]));
  }
}

// A scale d in f16 and 16 bytes; the numbers are d (q - 8), the low halves first.
void read_q4_0(const void* from, std::int64_t count, float* to) {
  constexpr std::int64_t kHalf = kSmallBlock / 2;
  const auto* block = static_cast<const std::uint8_t*>(from);
  for (; count > 0; count -= kSmallBlock, block += kStoredQ4_0.bytes, to += kSmallBlock) {
    const float scale = half_at(block);
    for (std::int64_t i = 0; i < kHalf; ++i) {
      to[i] = scale * static_cast<float>((block[2 + i] & 15) - 8);
      to[i + kHalf] = scale * static_cast<float>((block[2 + i] >> 4) - 8);
    }
  }
}

// The 6-bit scale and least value of part `part` of 8. For the first four parts they are the low bits of
// bytes 0-3 and 4-7. For the others the low four bits are the halves of bytes 8-11, and the high two bits are
// the remaining bits of bytes 0-3 and 4-7.
struct PartScales {
  int scale, least;
};
PartScales part_scales(const std::uint8_t* packed, int part) {
  if (part < 4) return {packed[part] & 63, packed[part + 4] & 63};
  return {(packed[part + 4] & 15) | (packed[part - 4] >> 6) << 4,
          (packed[part + 4] >> 4) | (packed[part] >> 6) << 4};
}

// d and m in f16, 12 bytes of scales s and least values l, and 128 bytes of codes q; the numbers are d s q -
// m l. Each 32 bytes hold two parts, the low halves the first one.
void read_q4_k(const void* from, std::int64_t count, float* to) {
  const auto* block = static_cast<const std::uint8_t*>(from);
  for (; count > 0; count -= kLargeBlock, block += kStoredQ4K.bytes) {
    const float scale = half_at(block), least = half_at(block + 2);
    const std::uint8_t* codes = block + 16;
    for (int part = 0; part < 8; ++part, to += kSmallBlock) {
      const PartScales own = part_scales(block + 4, part);
      const float factor = scale * static_cast<float>(own.scale),
                  offset = least * static_cast<float>(own.least);
      const std::uint8_t* bytes = codes + part / 2 * kSmallBlock;
      const int shift = part % 2 * 4;
      for (std::int64_t i = 0; i < kSmallBlock; ++i)
        to[i] = factor * static_cast<float>(bytes[i] >> shift & 15) - offset;
    }
  }
}

// 128 bytes of low halves, 64 of high quarters, 16 scales s of 8 bits, and d in f16; the numbers are d s (q -
// 32), with codes q of 6 bits. Each half of the block, 128 numbers, is four runs of 32. The low halves of
// runs 0 and 1 are the low bits of 64 bytes, those of runs 2 and 3 the high bits. Byte i of 32 has the high
// bits of all four runs.
void read_q6_k(const void* from, std::int64_t count, float* to) {
  constexpr int kRun = 32;
  const auto* block = static_cast<const std::uint8_t*>(from);
  for (; count > 0; count -= kLargeBlock, block += kStoredQ6K.bytes) {
    const float scale = half_at(block + 208);
    for (int run = 0; run < 8; ++run, to += kRun) {
      const std::uint8_t* low = block + run / 4 * 64 + run % 2 * kRun;
      const std::uint8_t* high = block + 128 + run / 4 * kRun;
      const int low_shift = run % 4 / 2 * 4, high_shift = run % 4 * 2;
      for (int i = 0; i < kRun; ++i) {
        const int code = (low[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4;
        const auto own = static_cast<std::int8_t>(block[192 + run * 2 + i / 16]);
        to[i] = scale * static_cast<float>(own) * static_cast<float>(code - 32);
      }
    }
  }
}

}  // namespace

const WeightFormat kStoredF32 = {"F32", 1, 4, 4, read_f32};
const WeightFormat kStoredF16 = {"F16", 1, 2, 2, read_f16};
const WeightFormat kStoredBf16 = {"BF16", 1, 2, 2, read_bf16};
const WeightFormat kStoredQ8_0 = {"Q8_0", kSmallBlock, 34, 1, read_q8_0};
const WeightFormat kStoredQ4_0 = {"Q4_0", kSmallBlock, 18, 1, read_q4_0};
const WeightFormat kStoredQ4K = {"Q4_K", kLargeBlock, 144, 1, read_q4_k};
const WeightFormat kStoredQ6K = {"Q6_K", kLargeBlock, 210, 1, read_q6_k};

const WeightFormat* weight_format_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return &kStoredF32;
    case DType::f16:
      return &kStoredF16;
    case DType::bf16:
      return &kStoredBf16;
    default:
      return nullptr;
  }
}

}  // namespace heed::detail
