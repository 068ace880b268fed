// Memory that tensors leave for later ones (core/tensor/recycled_blocks.hpp). Existing blocks are counted at
// operator new and delete.
#include "core/tensor/recycled_blocks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "heed/tensor.hpp"

namespace {
std::atomic<int> blocks{0};
}

void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  const auto align = static_cast<std::size_t>(alignment);
  void* const memory = std::aligned_alloc(align, (bytes + align - 1) / align * align);
  if (memory != nullptr) ++blocks;
  return memory;
}
void operator delete(void* memory, std::align_val_t) noexcept {
  if (memory != nullptr) --blocks;
  std::free(memory);
}

namespace {

using heed::Tensor;
using heed::detail::RecycledBlocks;

constexpr std::int64_t kSize = 1 << 18;  // 1 MiB of f32

Tensor tensor_of(std::int64_t size) { return Tensor::uninitialized({size}, heed::DType::f32); }

void make_and_end(std::int64_t size) {
  Tensor tensor = tensor_of(size);
  std::fill_n(tensor.values<float>().data(), size, std::numeric_limits<float>::quiet_NaN());
}

// Whether a tensor of this size reuses an existing block.
bool is_recycled(std::int64_t size) {
  const int before = blocks;
  const Tensor tensor = tensor_of(size);
  return blocks == before;
}

TEST(RecycledBlocks, WithoutOneATensorsMemoryEndsWithIt) {
  const int before = blocks;
  make_and_end(kSize);
  EXPECT_EQ(blocks, before);
}

TEST(RecycledBlocks, ATensorTakesTheMemoryOfOneThatEnded) {
  const int before = blocks;
  {
    const RecycledBlocks recycled;
    make_and_end(kSize);
    EXPECT_EQ(blocks, before + 1);
    EXPECT_TRUE(is_recycled(kSize));
    EXPECT_TRUE(is_recycled(kSize - kSize / 16)) << "somewhat more than it needs will do";
    EXPECT_TRUE(is_recycled(kSize)) << "and the block is as large as it was";
    EXPECT_FALSE(is_recycled(kSize / 2));
    EXPECT_FALSE(is_recycled(kSize + 1));
  }
  EXPECT_EQ(blocks, before) << "all are given back at its end";
}

TEST(RecycledBlocks, ATensorOfZerosIsOfZerosInUsedMemory) {
  const RecycledBlocks recycled;
  make_and_end(kSize);
  const int before = blocks;
  const Tensor zeros({kSize}, heed::DType::f32);
  ASSERT_EQ(blocks, before);
  const auto values = zeros.values<float>();
  EXPECT_TRUE(std::all_of(values.begin(), values.end(), [](float value) { return value == 0; }));
}

TEST(RecycledBlocks, OneInsideAnotherEndsNothing) {
  const RecycledBlocks recycled;
  make_and_end(kSize);
  { const RecycledBlocks inner; }
  EXPECT_TRUE(is_recycled(kSize));
}

TEST(RecycledBlocks, SmallTensorsAreNotKept) {
  const RecycledBlocks recycled;
  const int before = blocks;
  make_and_end(16);
  EXPECT_EQ(blocks, before);
}

TEST(RecycledBlocks, KeepsNoMoreThanItsLimitAndForgetsTheOldest) {
  const RecycledBlocks recycled;
  make_and_end(40 * kSize);
  make_and_end(20 * kSize);
  EXPECT_TRUE(is_recycled(40 * kSize));  // so the one of 20 MiB is now the oldest
  make_and_end(10 * kSize);
  EXPECT_TRUE(is_recycled(10 * kSize));
  EXPECT_TRUE(is_recycled(40 * kSize));
  EXPECT_FALSE(is_recycled(20 * kSize));
  const int before = blocks;
  make_and_end(65 * kSize);
  EXPECT_EQ(blocks, before) << "beyond the limit";
}

// Every block is freed once, wherever its tensor ends.
TEST(RecycledBlocks, TensorsMayOutliveItAndEndOnOtherThreads) {
  const int before = blocks;
  {
    std::vector<Tensor> made;
    {
      const RecycledBlocks recycled;
      for (std::int64_t size = kSize / 32; size < 40 * kSize; size = size * 5 / 4) {
        make_and_end(size);
        made.emplace_back(heed::Dims{size}, heed::DType::f32);
      }
      const int with_all = blocks;
      std::thread([kept = std::move(made.back())] {}).join();
      made.pop_back();
      EXPECT_EQ(blocks, with_all - 1) << "the other thread keeps nothing";
    }
    const RecycledBlocks later;
    for (Tensor& tensor : made) {
      const Tensor gone = std::move(tensor);
      EXPECT_EQ(gone.values<float>()[0], 0);
    }
  }
  EXPECT_EQ(blocks, before);
}

}  // namespace
