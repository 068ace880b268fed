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

}  // namespace heed::detail
