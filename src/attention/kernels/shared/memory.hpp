// Division of a thread's working memory into pieces.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heed::detail::HEED_ISA {

/// Returns aligned pieces of the memory at `base`; with base == nullptr, only counts bytes.
class Memory {
 public:
  explicit Memory(void* base) : base_(static_cast<char*>(base)) {}

  template <class T>
  T* take(std::int64_t count) {
    void* piece = base_ != nullptr ? base_ + bytes_ : nullptr;
    bytes_ += (static_cast<std::size_t>(count) * sizeof(T) + 63) / 64 * 64;
    return static_cast<T*>(piece);
  }
  float* floats(std::int64_t count) { return take<float>(count); }

  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  char* base_;
  std::size_t bytes_ = 0;
};

}  // namespace heed::detail::HEED_ISA
