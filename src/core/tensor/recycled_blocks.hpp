// Reuse of freed tensor memory.
#pragma once

#include <cstddef>

#include "heed/export.hpp"

namespace heed::detail {

/// While an object lives, its thread's tensors of 64 KiB and more reuse freed tensor memory, at most about 64
/// MiB. Fresh pages would have to be mapped and cleared by the kernel, and a model's layers ask for the same
/// sizes again and again. A nested object does nothing.
class HEED_API RecycledBlocks {
 public:
  RecycledBlocks();
  ~RecycledBlocks();
  RecycledBlocks(const RecycledBlocks&) = delete;
  RecycledBlocks& operator=(const RecycledBlocks&) = delete;

 private:
  bool is_first_;
};

/// A block of at least the requested size, and its size.
struct Block {
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
};

/// Aligned for any vector type; null if out of memory.
[[nodiscard]] Block allocate_block(std::size_t bytes) noexcept;
void free_block(Block block) noexcept;

}  // namespace heed::detail
