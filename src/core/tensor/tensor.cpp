#include "heed/tensor.hpp"

#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "heed/error.hpp"

namespace heed {
namespace {

constexpr std::size_t kAlignment = 64;  // a cache line, and the widest vector register

std::size_t byte_count(const Dims& shape, DType dtype) {
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(element_count(shape), static_cast<std::int64_t>(size_of(dtype)), &bytes))
    throw Error(ErrorCode::out_of_memory, "shape " + to_string(shape) + " of " + std::string(name_of(dtype)) +
                                              " has more bytes than 64 bits can count");
  return static_cast<std::size_t>(bytes);
}

}  // namespace

void Tensor::Free::operator()(std::byte* memory) const noexcept {
  ::operator delete (memory, std::align_val_t{kAlignment});
}

namespace {

// From here on a tensor asks for huge pages: filling fresh memory of 4 KiB pages takes as long as computing
// it.
constexpr std::size_t kHugeBytes = std::size_t{8} << 20;

void ask_for_huge_pages([[maybe_unused]] std::byte* memory, [[maybe_unused]] std::size_t bytes) {
#if defined(MADV_HUGEPAGE)
  if (bytes < kHugeBytes) return;
  constexpr std::uintptr_t kPage = 4096;
  const auto begin = (reinterpret_cast<std::uintptr_t>(memory) + kPage - 1) / kPage * kPage;
  const auto end = (reinterpret_cast<std::uintptr_t>(memory) + bytes) / kPage * kPage;
  // A hint: where it is refused, pages stay as they are.
  (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

}  // namespace

Tensor Tensor::uninitialized(const Dims& shape, DType dtype) {
  const std::size_t bytes = byte_count(shape, dtype);
  Tensor tensor;
  // An empty tensor has a valid pointer too, so that `data()` is never null by surprise.
  auto* memory = static_cast<std::byte*>(
      ::operator new (bytes == 0 ? 1 : bytes, std::align_val_t{kAlignment}, std::nothrow));
  if (memory == nullptr)
    throw Error(ErrorCode::out_of_memory, "no memory for shape " + to_string(shape) + " of " +
                                              std::string(name_of(dtype)) + " (" + std::to_string(bytes) +
                                              " bytes)");
  ask_for_huge_pages(memory, bytes);
  tensor.memory_.reset(memory);
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
    throw Error(ErrorCode::invalid_argument, std::to_string(bytes.size() / size_of(dtype)) +
                                                 " values were given for a tensor of shape " +
                                                 to_string(shape));
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
    throw Error(ErrorCode::invalid_argument,
                "shape " + to_string(shape_) + " cannot become " + to_string(shape) + ": the counts differ");
  Tensor result = std::move(*this);
  result.shape_ = shape;
  return result;
}

}  // namespace heed
