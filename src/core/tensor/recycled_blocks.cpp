#include "core/tensor/recycled_blocks.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace heed::detail {
namespace {

constexpr std::align_val_t kAlignment{64};  // a cache line, and the widest vector register

// Smallest kept block, and limit for all kept blocks together. The system's allocator caches smaller blocks
// anyway.
constexpr std::size_t kLeastKept = std::size_t{64} << 10, kMaxKept = std::size_t{64} << 20;

// From this size on a tensor asks for huge pages. Faulting in fresh 4 KiB pages takes as long as computing
// the tensor.
constexpr std::size_t kHugeBytes = std::size_t{8} << 20;

void ask_for_huge_pages([[maybe_unused]] const Block& block) {
#if defined(MADV_HUGEPAGE)
  if (block.bytes < kHugeBytes) return;
  constexpr std::uintptr_t kPage = 4096;
  const auto begin = (reinterpret_cast<std::uintptr_t>(block.memory) + kPage - 1) / kPage * kPage;
  const auto end = (reinterpret_cast<std::uintptr_t>(block.memory) + block.bytes) / kPage * kPage;
  // Only a hint: if refused, the pages stay small.
  (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

void give_back(const Block& block) noexcept { ::operator delete(block.memory, kAlignment); }

// The blocks that a thread keeps, the oldest first.
class KeptBlocks {
 public:
  bool is_on() const noexcept { return on_; }
  void begin() noexcept { on_ = true; }
  void end() noexcept {
    on_ = false;
    while (count_ > 0) give_back(taken(count_ - 1));
  }

  // The smallest kept block with at least `bytes` bytes, but not much larger.
  Block take(std::size_t bytes) noexcept {
    std::size_t best = count_;
    for (std::size_t i = 0; i < count_; ++i)
      if (blocks_[i].bytes >= bytes && blocks_[i].bytes - bytes <= bytes / 8 &&
          (best == count_ || blocks_[i].bytes < blocks_[best].bytes))
        best = i;
    return best == count_ ? Block{} : taken(best);
  }

  void keep(const Block& block) noexcept {
    while (count_ > 0 && (count_ == blocks_.size() || kept_ + block.bytes > kMaxKept)) give_back(taken(0));
    blocks_[count_++] = block;
    kept_ += block.bytes;
  }

 private:
  Block taken(std::size_t at) noexcept {
    const Block block = blocks_[at];
    std::copy(blocks_.begin() + static_cast<std::ptrdiff_t>(at) + 1,
              blocks_.begin() + static_cast<std::ptrdiff_t>(count_),
              blocks_.begin() + static_cast<std::ptrdiff_t>(at));
    --count_;
    kept_ -= block.bytes;
    return block;
  }

  std::array<Block, 32> blocks_{};
  std::size_t count_ = 0, kept_ = 0;
  bool on_ = false;
};

thread_local constinit KeptBlocks kept_blocks;

bool is_kept(std::size_t bytes) noexcept {
  return kept_blocks.is_on() && bytes >= kLeastKept && bytes <= kMaxKept;
}

}  // namespace

RecycledBlocks::RecycledBlocks() : is_first_(!kept_blocks.is_on()) { kept_blocks.begin(); }

RecycledBlocks::~RecycledBlocks() {
  if (is_first_) kept_blocks.end();
}

Block allocate_block(std::size_t bytes) noexcept {
  if (is_kept(bytes))
    if (const Block kept = kept_blocks.take(bytes); kept.memory != nullptr) return kept;
  // An empty block must not be null either.
  const std::size_t size = std::max<std::size_t>(bytes, 1);
  const Block block{static_cast<std::byte*>(::operator new(size, kAlignment, std::nothrow)), size};
  if (block.memory != nullptr) ask_for_huge_pages(block);
  return block;
}

void free_block(Block block) noexcept {
  if (block.memory != nullptr && is_kept(block.bytes))
    kept_blocks.keep(block);
  else
    give_back(block);
}

}  // namespace heed::detail
