// Memory of tensors that ended, for those that come next.
#pragma once

#include <cstddef>
#include <vector>

#include "heed/export.hpp"

namespace heed::detail {

/// While one lives, its thread's tensors of 64 KiB and more take the memory of those that ended, some 64 MiB
/// at most, in place of fresh pages, which the kernel must clear and map: a model's layers ask for the same
/// sizes again and again. One inside another does nothing.
class HEED_API RecycledBlocks {
 public:
  RecycledBlocks();
  ~RecycledBlocks();
  RecycledBlocks(const RecycledBlocks&) = delete;
  RecycledBlocks& operator=(const RecycledBlocks&) = delete;

 private:
  bool is_first_;
};

/// A block of `bytes` bytes or somewhat more, and how many it has.
struct Block {
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
};

/// Aligned for any vector; null where there is no memory.
[[nodiscard]] Block allocate_block(std::size_t bytes) noexcept;
void free_block(Block block) noexcept;

}  // namespace heed::detail
