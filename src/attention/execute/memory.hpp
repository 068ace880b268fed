// Working memory, aligned for vectors.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace heed::detail {

/// Memory that is kept between uses and only grows. Growing discards its contents.
class AlignedMemory {
 public:
  /// Returns true if the memory moved; whatever was prepared in it must be prepared again.
  bool reserve(std::size_t bytes) {
    if (bytes <= size_) return false;
    memory_.reset();
    size_ = 0;
    memory_.reset(static_cast<std::byte*>(::operator new(bytes, kAlignment)));
    size_ = bytes;
    return true;
  }
  [[nodiscard]] void* data() const { return memory_.get(); }
  [[nodiscard]] std::size_t bytes() const { return size_; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(std::byte* memory) const noexcept { ::operator delete(memory, kAlignment); }
  };
  std::unique_ptr<std::byte[], Free> memory_;
  std::size_t size_ = 0;
};

}  // namespace heed::detail
