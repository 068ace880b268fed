// The C ABI out of memory: each allocation of a call fails once. Also tests the error text between threads.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>

#include "heed/heed.h"

namespace {

std::atomic<bool> counting{false};
std::atomic<int> allocations{0};  // since counting began
std::atomic<int> fail_at{-1};
std::atomic<int> alive{0};  // allocated while counting, not yet freed

// Each block begins with a flag that tells whether it was counted, because a thread may free memory from
// before counting began.
void* allocate(std::size_t size, std::size_t alignment) noexcept {
  if (counting && allocations++ == fail_at) return nullptr;
  // aligned_alloc needs a multiple of the alignment.
  auto* memory =
      static_cast<char*>(std::aligned_alloc(alignment, (size + 2 * alignment) / alignment * alignment));
  if (memory == nullptr) return nullptr;
  *memory = counting ? 1 : 0;
  if (counting) ++alive;
  return memory + alignment;
}

void* allocate_or_throw(std::size_t size, std::size_t alignment) {
  void* memory = allocate(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void release(void* memory, std::size_t alignment) noexcept {
  if (memory == nullptr) return;
  char* block = static_cast<char*>(memory) - alignment;
  if (*block != 0) --alive;
  std::free(block);
}

}  // namespace

void* operator new(std::size_t size) { return allocate_or_throw(size, 16); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, 16); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { release(memory, 16); }
void operator delete(void* memory, std::size_t) noexcept { release(memory, 16); }
void operator delete(void* memory, std::align_val_t alignment) noexcept {
  release(memory, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory, std::size_t, std::align_val_t alignment) noexcept {
  release(memory, static_cast<std::size_t>(alignment));
}

namespace {

struct Call {
  float numbers[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  float output_numbers[12] = {}, lse_numbers[3] = {}, gradient_numbers[3][12] = {};
  std::int64_t index[6] = {};
  std::int64_t offsets[2] = {0, 3};
  heed_tensor tensor, output, top_k, segments, lse, gradients[3];
  heed_attention_options options;
  heed_attention_outputs outputs;
  heed_attention_backward_inputs inputs;
  heed_attention_gradients wanted;
  heed_tensor rows, row_outputs;
  heed_kv_cache_options cache_options;
  heed_attention_outputs cache_outputs;

  Call() {
    const std::int64_t shape[] = {3, 4};
    const std::int64_t top_shape[] = {3, 2};
    const std::int64_t two[] = {2};
    EXPECT_EQ(heed_tensor_init(&tensor, numbers, HEED_F32, 2, shape), HEED_OK);
    EXPECT_EQ(heed_tensor_init(&output, output_numbers, HEED_F32, 2, shape), HEED_OK);
    EXPECT_EQ(heed_tensor_init(&top_k, index, HEED_I64, 2, top_shape), HEED_OK);
    EXPECT_EQ(heed_tensor_init(&segments, offsets, HEED_I64, 1, two), HEED_OK);
    EXPECT_EQ(heed_attention_options_init(&options), HEED_OK);
    EXPECT_EQ(heed_attention_outputs_init(&outputs), HEED_OK);
    options.query_segments = options.key_segments = &segments;
    outputs.output = &output;
    outputs.top_k_index = &top_k;
    EXPECT_EQ(heed_tensor_init(&lse, lse_numbers, HEED_F32, 1, shape), HEED_OK);
    for (std::size_t n = 0; n < 3; ++n)
      EXPECT_EQ(heed_tensor_init(&gradients[n], gradient_numbers[n], HEED_F32, 2, shape), HEED_OK);
    EXPECT_EQ(heed_attention_backward_inputs_init(&inputs), HEED_OK);
    EXPECT_EQ(heed_attention_gradients_init(&wanted), HEED_OK);
    inputs.query = inputs.key = inputs.value = inputs.grad_output = &tensor;
    inputs.output = &output;
    inputs.lse = &lse;
    wanted.query = &gradients[0];
    wanted.key = &gradients[1];
    wanted.value = &gradients[2];
    const std::int64_t row_shape[] = {1, 1, 3, 4};
    EXPECT_EQ(heed_tensor_init(&rows, numbers, HEED_F32, 4, row_shape), HEED_OK);
    EXPECT_EQ(heed_tensor_init(&row_outputs, output_numbers, HEED_F32, 4, row_shape), HEED_OK);
    EXPECT_EQ(heed_kv_cache_options_init(&cache_options), HEED_OK);
    EXPECT_EQ(heed_attention_outputs_init(&cache_outputs), HEED_OK);
    cache_options.kv_heads = 1;
    cache_options.head_dim = 4;
    cache_options.capacity = 8;
    cache_options.layout = HEED_CACHE_PAGED;
    cache_options.format = HEED_CACHE_INT4;
    cache_outputs.output = &row_outputs;
  }
  heed_status attend() const { return heed_attention(&tensor, &tensor, &tensor, &options, &outputs); }
  heed_status differentiate() const { return heed_attention_backward(&inputs, &options, &wanted); }
  // The life of a cache: create, append, attend, free.
  heed_status decode() const {
    heed_kv_cache* cache = nullptr;
    heed_status status = heed_kv_cache_create(&cache_options, &cache);
    if (status == HEED_OK) status = heed_kv_cache_append(cache, &rows, &rows, nullptr, nullptr, 0);
    if (status == HEED_OK) status = heed_kv_cache_attention(&rows, cache, nullptr, nullptr, &cache_outputs);
    heed_kv_cache_free(cache);
    return status;
  }
};
using Work = heed_status (Call::*)() const;

// Runs on a new thread, because a thread keeps its working memory until it ends. `text` receives
// heed_last_error().
heed_status failing_at(Work work, const Call& call, int allocation, std::string* text = nullptr) {
  heed_status status = HEED_OK;
  alive = 0;
  std::thread([&] {
    allocations = 0;
    fail_at = allocation;
    counting = true;
    status = (call.*work)();
    counting = false;
    if (text != nullptr) *text = heed_last_error();
  }).join();
  return status;
}

TEST(CApiMemory, EveryFailedAllocationIsAnErrorCodeAndNoLeak) {
  const Call call;
  for (const Work work : {&Call::attend, &Call::differentiate, &Call::decode}) {
    ASSERT_EQ((call.*work)(), HEED_OK);  // makes the objects that a process makes only once
    ASSERT_EQ(failing_at(work, call, -1), HEED_OK);
    const int total = allocations;
    ASSERT_GT(total, 5);
    EXPECT_EQ(alive, 0);
    for (int n = 0; n < total; ++n) {
      std::string text;
      EXPECT_EQ(failing_at(work, call, n, &text), HEED_OUT_OF_MEMORY) << "allocation " << n;
      EXPECT_NE(text, "");
      EXPECT_EQ(alive, 0) << "allocation " << n;
    }
    EXPECT_EQ((call.*work)(), HEED_OK);
    EXPECT_EQ(std::string(heed_last_error()), "");
  }
}

TEST(CApiMemory, AnErrorThatCannotBePutIntoWordsForLackOfMemoryIsStillACode) {
  Call call;
  call.options.softcap = -1;
  ASSERT_EQ(failing_at(&Call::attend, call, -1), HEED_INVALID_ARGUMENT);
  const int total = allocations;
  for (int n = 0; n < total; ++n) {
    EXPECT_EQ(failing_at(&Call::attend, call, n), HEED_OUT_OF_MEMORY) << "allocation " << n;
    EXPECT_EQ(alive, 0) << "allocation " << n;
  }
}

TEST(CApiErrors, AreOfTheirThread) {
  Call call;
  call.options.softcap = -1;
  EXPECT_EQ(call.attend(), HEED_INVALID_ARGUMENT);
  const std::string here = heed_last_error();
  EXPECT_EQ(here, "softcap is -1; a finite number of 0 (off) or more is expected");
  std::thread([] {
    EXPECT_EQ(std::string(heed_last_error()), "");
    EXPECT_EQ(heed_attention(nullptr, nullptr, nullptr, nullptr, nullptr), HEED_INVALID_ARGUMENT);
    EXPECT_EQ(std::string(heed_last_error()), "query is NULL");
  }).join();
  EXPECT_EQ(heed_last_error(), here);
}

}  // namespace
