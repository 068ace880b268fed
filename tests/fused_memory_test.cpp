// The memory that the fused kernel allocates, counted at operator new: at most 8 MiB per thread at any
// length, and none for repeated calls. For gradients it grows linearly with the length.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>

#include "attention_support.hpp"
#include "heed/attention/backward.hpp"

namespace {

// The bytes held now, the largest number of bytes so far, and the number of calls of operator new.
struct Count {
  std::atomic<std::int64_t> held = 0, most = 0, calls = 0;
} g_count;

// Stores a block's size before it, in as much space as its alignment needs.
void* counted(std::size_t bytes, std::size_t alignment) {
  const std::size_t room = alignment > alignof(std::max_align_t) ? alignment : alignof(std::max_align_t);
  void* memory = std::aligned_alloc(room, (bytes + room + room - 1) / room * room);
  if (memory == nullptr) throw std::bad_alloc();
  *static_cast<std::size_t*>(memory) = bytes;
  const std::int64_t held = g_count.held += static_cast<std::int64_t>(bytes);
  std::int64_t most = g_count.most;
  while (held > most && !g_count.most.compare_exchange_weak(most, held)) {
  }
  ++g_count.calls;
  return static_cast<std::byte*>(memory) + room;
}
void discard(void* memory, std::size_t alignment) noexcept {
  if (memory == nullptr) return;
  const std::size_t room = alignment > alignof(std::max_align_t) ? alignment : alignof(std::max_align_t);
  void* begin = static_cast<std::byte*>(memory) - room;
  g_count.held -= static_cast<std::int64_t>(*static_cast<std::size_t*>(begin));
  std::free(begin);
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { discard(memory, 1); }
void operator delete(void* memory, std::size_t) noexcept { discard(memory, 1); }
void operator delete(void* memory, std::align_val_t alignment) noexcept {
  discard(memory, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory, std::size_t, std::align_val_t alignment) noexcept {
  discard(memory, static_cast<std::size_t>(alignment));
}

namespace {

using heed::AttentionOptions;
using heed::AttentionOutputs;
using heed::DType;
using heed::Tensor;
using heed::test::normal_tensor;

struct FusedMemory : ::testing::Test {
  void SetUp() override {
    const std::string reason = heed::test::why_not_fused();
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
};

struct Shape {
  std::int64_t heads, kv_heads, rows, keys, width;
  DType dtype;
};

// The most memory that one call on its own thread holds beyond its tensors. A thread keeps its working memory
// for its next call, so only a new thread shows it.
std::int64_t most_held(const Shape& shape, int threads, bool with_summaries,
                       const heed::SparseMask& mask = {}) {
  const Tensor query({shape.heads, shape.rows, shape.width}, shape.dtype);  // zeros are as good as any
  const Tensor key({shape.kv_heads, shape.keys, shape.width}, shape.dtype);
  Tensor output({shape.heads, shape.rows, shape.width}, shape.dtype);
  const auto summary = [&](const heed::Dims& dims, DType dtype) { return Tensor(dims, dtype); };
  Tensor lse = summary({shape.heads, shape.rows}, DType::f32);
  Tensor entropy = summary({shape.heads, shape.rows}, DType::f32);
  Tensor index = summary({shape.heads, shape.rows, 8}, DType::i64);
  Tensor weight = summary({shape.heads, shape.rows, 8}, DType::f32);
  Tensor map = summary({shape.heads, 64, 64}, DType::f32);
  AttentionOutputs outputs;
  outputs.output = output;
  if (with_summaries) {
    outputs.lse = lse;
    outputs.entropy = entropy;
    outputs.top_k_index = index;
    outputs.top_k_weight = weight;
    outputs.map = map;
  }
  AttentionOptions options{
      .align = heed::Align::bottom_right, .kernel = heed::Kernel::fused, .threads = threads};
  options.window = {64, 0};  // keeps the time linear in the length
  options.sparse_mask = mask;
  std::int64_t before = 0;
  std::thread caller([&] {
    before = g_count.held;
    g_count.most = before;
    (void)heed::attention_into(query, key, key, options, outputs);
  });
  caller.join();
  return g_count.most - before;
}

TEST_F(FusedMemory, IsAtMostEightMebibytesAThreadAtAnyLength) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t width : {64, 128, 512})
      for (const std::int64_t length : {1000, 8192, 32768})
        for (const int threads : {1, 2})
          for (const bool with_summaries : {false, true}) {
            const std::int64_t most =
                most_held({2, 1, length, length, width, dtype}, threads, with_summaries);
            EXPECT_TRUE(most <= threads * (std::int64_t{8} << 20))
                << most << " bytes at length " << length << ", width " << width << ", " << threads
                << " threads, " << heed::name_of(dtype) << (with_summaries ? ", with summaries" : "");
          }
}

// A byte per key for the rows of one task and KV block comes on top. (sparse_mask_test tests the masks
// themselves.)
TEST_F(FusedMemory, UnderSparseMasksIsAtMostEightMebibytesAThreadToo) {
  for (const std::int64_t length : {1000, 100'000})
    for (const int threads : {1, 2})
      for (const heed::SparseMask& mask : {heed::masks::sinks_and_window(4, 40, length, length),
                                           heed::masks::dilated(8, 3, length, length)}) {
        const std::int64_t most = most_held({2, 1, length, length, 128, DType::f32}, threads, true, mask);
        EXPECT_TRUE(most <= threads * (std::int64_t{8} << 20)) << most << " bytes at length " << length;
      }
}

TEST_F(FusedMemory, OfDecodingIsAtMostEightMebibytesAThread) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t width : {128, 1024}) {
      const std::int64_t most = most_held({32, 8, 1, 8192, width, dtype}, 2, true);
      EXPECT_TRUE(most <= 2 * (std::int64_t{8} << 20)) << most << " bytes, width " << width;
    }
}

// The same for the gradients of one head, in f32.
std::int64_t most_held_backward(std::int64_t length, int threads) {
  const heed::Dims shape{1, length, 64};
  const Tensor zeros(shape);
  const Tensor lse({1, length});
  Tensor query(shape), key(shape), value(shape);
  const heed::AttentionBackwardInputs inputs{zeros, zeros, zeros, zeros, lse, zeros};
  AttentionOptions options{.causal = true, .kernel = heed::Kernel::fused, .threads = threads};
  options.window = {64, 0};
  std::int64_t before = 0;
  std::thread caller([&] {
    before = g_count.held;
    g_count.most = before;
    (void)heed::attention_backward_into(inputs, options, {query, key, value, {}, {}});
  });
  caller.join();
  return g_count.most - before;
}

// Few heads have their keys split into up to 16 parts of at least 768 keys. Each part has its own gradient of
// the query, and so has each thread, and tiles add theirs. All of that is O(Lq), whatever the number of keys.
TEST_F(FusedMemory, OfGradientsGrowsAsTheLengthDoes) {
  for (const int threads : {1, 2}) {
    std::int64_t half = 0;
    for (const std::int64_t length : {1024, 8192, 16384, 32768, 65536}) {
      const std::int64_t most = most_held_backward(length, threads);
      const std::int64_t query = length * 64 * std::int64_t{sizeof(float)};
      EXPECT_TRUE(most <= (17 + 2 * threads) * query + (std::int64_t{1} << 20))
          << most << " bytes at length " << length << ", " << threads << " threads";
      // At shorter lengths the number of parts grows too.
      if (length > 32768) {
        EXPECT_TRUE(most <= 2 * half + half / 50) << most << " and " << half;
      }
      half = most;
    }
  }
}

// 9 tokens of 24 numbers, as in the notebooks.
TEST_F(FusedMemory, ASmallCallAllocatesNothingAfterTheFirst) {
  const Tensor input = normal_tensor({9, 24}, 1, DType::f32);
  Tensor output({9, 24}, DType::f32);
  AttentionOutputs outputs;
  outputs.output = output;
  const AttentionOptions options{.causal = true, .kernel = heed::Kernel::fused};
  for (int repeat = 0; repeat < 2; ++repeat)
    (void)heed::attention_into(input, input, input, options, outputs);
  const std::int64_t calls = g_count.calls;
  for (int repeat = 0; repeat < 1000; ++repeat)
    (void)heed::attention_into(input, input, input, options, outputs);
  EXPECT_EQ(g_count.calls, calls);
}

}  // namespace
