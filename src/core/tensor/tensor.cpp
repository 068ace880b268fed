#include "heed/tensor.hpp"

#include <cstdint>
#include <cstring>
#include <utility>

#include "core/message.hpp"
#include "core/tensor/recycled_blocks.hpp"
#include "heed/error.hpp"

namespace heed {
namespace {

std::size_t byte_count(const Dims& shape, DType dtype) {
  detail::check_listed("dtype", dtype, DType::boolean);
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(element_count(shape), static_cast<std::int64_t>(size_of(dtype)), &bytes))
    detail::refuse(ErrorCode::out_of_memory, "shape ", shape, " of ", dtype,
                   " has more bytes than 64 bits can count");
  return static_cast<std::size_t>(bytes);
}

}  // namespace

void Tensor::Free::operator()(std::byte* memory) const noexcept { detail::free_block({memory, bytes}); }

Tensor Tensor::uninitialized(const Dims& shape, DType dtype) {
  const std::size_t bytes = byte_count(shape, dtype);
  Tensor tensor;
  // An empty tensor also gets a valid pointer, so that `data()` is never null.
  const detail::Block block = detail::allocate_block(bytes);
  if (block.memory == nullptr)
    detail::refuse(ErrorCode::out_of_memory, "not enough memory for shape ", shape, " of ", dtype, " (",
                   bytes, " bytes)");
  tensor.memory_ = {block.memory, Free{block.bytes}};
  tensor.dtype_ = dtype;
  tensor.shape_ = shape;
  return tensor;
}

Tensor::Tensor(const Dims& shape, DType dtype) : Tensor(uninitialized(shape, dtype)) {
  std::memset(memory_.get(), 0, byte_count(shape, dtype));
}

Tensor::Tensor(const Tensor& other) : dtype_(other.dtype_) {
  if (other.memory_ == nullptr) return;
  *this = uninitialized(other.shape_, other.dtype_);
  std::memcpy(memory_.get(), other.memory_.get(), byte_count(shape_, dtype_));
}

Tensor& Tensor::operator=(const Tensor& other) {
  if (this != &other) *this = Tensor(other);
  return *this;
}

Tensor::Tensor(Tensor&& other) noexcept
    : memory_(std::move(other.memory_)), dtype_(other.dtype_), shape_(std::exchange(other.shape_, Dims{0})) {}

Tensor& Tensor::operator=(Tensor&& other) noexcept {
  memory_ = std::move(other.memory_);
  dtype_ = other.dtype_;
  shape_ = std::exchange(other.shape_, Dims{0});
  return *this;
}

Tensor Tensor::from_bytes(std::span<const std::byte> bytes, DType dtype, const Dims& shape) {
  if (bytes.size() != byte_count(shape, dtype))
    detail::refuse(detail::counted(bytes.size() / size_of(dtype), "value"),
                   " were given for a tensor of shape ", shape);
  Tensor tensor = uninitialized(shape, dtype);
  if (!bytes.empty()) std::memcpy(tensor.memory_.get(), bytes.data(), bytes.size());
  return tensor;
}

Tensor Tensor::copy_of(const TensorView& view) { return copy_of(view, view.dtype()); }

Tensor Tensor::copy_of(const TensorView& view, DType dtype) {
  Tensor tensor = uninitialized(view.shape(), dtype);
  copy(view, tensor);
  return tensor;
}

Tensor Tensor::reshaped(const Dims& shape) && {
  if (element_count(shape) != count())
    detail::refuse("shape ", shape_, " cannot become ", shape, ": the numbers of elements differ");
  Tensor result = std::move(*this);
  result.shape_ = shape;
  return result;
}

}  // namespace heed
