// Memory with inaccessible pages around it.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

#include "heed/tensor.hpp"

namespace heed::test {

/// Memory mapped from the system. Only pages that are touched use memory.
class Mapping {
 public:
  explicit Mapping(std::size_t bytes)
      : bytes_(bytes),
        memory_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                     0)) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (ok()) munmap(memory_, bytes_);
  }
  [[nodiscard]] bool ok() const { return memory_ != MAP_FAILED; }
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(memory_); }

 private:
  std::size_t bytes_;
  void* memory_;
};

enum class Side { first_byte, last_byte };

/// A copy of a tensor that begins directly after, or ends directly before, an inaccessible page.
class Guarded {
 public:
  Guarded(const Tensor& tensor, Side side) : tensor_(tensor) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const auto bytes = static_cast<std::size_t>(tensor.count()) * size_of(tensor.dtype());
    const std::size_t inner = (bytes + page - 1) / page * page;
    mapping_ = std::make_unique<Mapping>(inner + 2 * page);
    if (!mapping_->ok() || mprotect(mapping_->data(), page, PROT_NONE) != 0 ||
        mprotect(mapping_->data() + page + inner, page, PROT_NONE) != 0)
      throw std::bad_alloc();
    begin_ = mapping_->data() + page + (side == Side::first_byte ? 0 : inner - bytes);
    std::memcpy(begin_, tensor.view().data(), bytes);
  }
  [[nodiscard]] MutableTensorView view() const { return {begin_, tensor_.dtype(), tensor_.shape()}; }

 private:
  Tensor tensor_;
  std::unique_ptr<Mapping> mapping_;
  std::byte* begin_ = nullptr;
};

}  // namespace heed::test
