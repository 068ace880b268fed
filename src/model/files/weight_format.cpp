#include "model/files/weight_format.hpp"

#include <cstring>

#include "attention/isa/dispatch.hpp"

namespace heed::detail {
namespace {

void read_f32(const void* from, std::int64_t count, float* to) {
  std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
}
void read_f16(const void* from, std::int64_t count, float* to) {
  cpu::kernels().all().products.widen_f16(static_cast<const std::uint16_t*>(from), count, to);
}
void read_bf16(const void* from, std::int64_t count, float* to) {
  cpu::kernels().all().products.widen_bf16(static_cast<const std::uint16_t*>(from), count, to);
}

}  // namespace

const cpu::BlockProducts& block_products(cpu::BlockKind kind) {
  return cpu::kernels().all().products.blocks[static_cast<int>(kind)];
}

void read_numbers(const WeightFormat& format, const void* from, std::int64_t count, float* to) {
  if (format.block)
    block_products(*format.block).read(from, count, to);
  else
    format.read(from, count, to);
}

const WeightFormat kStoredF32 = {"F32", 1, 4, 4, read_f32};
const WeightFormat kStoredF16 = {"F16", 1, 2, 2, read_f16};
const WeightFormat kStoredBf16 = {"BF16", 1, 2, 2, read_bf16};

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

using cpu::BlockKind;

const WeightFormat kStoredQ4_0 = {"Q4_0", 32, 18, 1, nullptr, BlockKind::q4_0};
const WeightFormat kStoredQ4_1 = {"Q4_1", 32, 20, 1, nullptr, BlockKind::q4_1};
const WeightFormat kStoredQ5_0 = {"Q5_0", 32, 22, 1, nullptr, BlockKind::q5_0};
const WeightFormat kStoredQ5_1 = {"Q5_1", 32, 24, 1, nullptr, BlockKind::q5_1};
const WeightFormat kStoredQ8_0 = {"Q8_0", 32, 34, 1, nullptr, BlockKind::q8_0};
const WeightFormat kStoredIq4Nl = {"IQ4_NL", 32, 18, 1, nullptr, BlockKind::iq4_nl};
const WeightFormat kStoredMxfp4 = {"MXFP4", 32, 17, 1, nullptr, BlockKind::mxfp4};
const WeightFormat kStoredQ2K = {"Q2_K", 256, 84, 1, nullptr, BlockKind::q2_k};
const WeightFormat kStoredQ3K = {"Q3_K", 256, 110, 1, nullptr, BlockKind::q3_k};
const WeightFormat kStoredQ4K = {"Q4_K", 256, 144, 1, nullptr, BlockKind::q4_k};
const WeightFormat kStoredQ5K = {"Q5_K", 256, 176, 1, nullptr, BlockKind::q5_k};
const WeightFormat kStoredQ6K = {"Q6_K", 256, 210, 1, nullptr, BlockKind::q6_k};
const WeightFormat kStoredIq4Xs = {"IQ4_XS", 256, 136, 1, nullptr, BlockKind::iq4_xs};

}  // namespace heed::detail
