// Caches out of memory. Each allocation of every operation fails once. Afterwards the cache must be
// unchanged, bit for bit, and must continue to work.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "attention_support.hpp"
#include "heed/attention/kv_cache.hpp"
#include "saved_cache.hpp"

namespace {

// The bytes held now. While `failing`, the allocation with this number fails.
std::int64_t held = 0;
bool failing = false;
int allocations = 0, fail_at = -1;

// Stores a block's size before it, in as much space as its alignment needs.
void* allocate(std::size_t bytes, std::size_t alignment) {
  if (failing && allocations++ == fail_at) throw std::bad_alloc();
  void* memory = std::aligned_alloc(alignment, (bytes + 2 * alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  *static_cast<std::size_t*>(memory) = bytes;
  held += static_cast<std::int64_t>(bytes);
  return static_cast<std::byte*>(memory) + alignment;
}
void discard(void* memory, std::size_t alignment) noexcept {
  if (memory == nullptr) return;
  void* begin = static_cast<std::byte*>(memory) - alignment;
  held -= static_cast<std::int64_t>(*static_cast<std::size_t*>(begin));
  std::free(begin);
}

constexpr std::size_t kPlain = alignof(std::max_align_t);

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes, kPlain); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { discard(memory, kPlain); }
void operator delete(void* memory, std::size_t) noexcept { discard(memory, kPlain); }
void operator delete(void* memory, std::align_val_t alignment) noexcept {
  discard(memory, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory, std::size_t, std::align_val_t alignment) noexcept {
  discard(memory, static_cast<std::size_t>(alignment));
}

namespace {

using heed::CacheFormat;
using heed::CacheLayout;
using heed::DType;
using heed::KvCache;
using heed::KvCacheOptions;
using heed::Tensor;
using heed::test::normal_tensor;

// The original cache, a copy, and a cache rebuilt from tensors. Operations rely on the capacity that each one
// reserves.
enum class Made { plain, copied, restored };
constexpr const char* kMade[] = {"plain", "copied", "restored"};

// Two sequences of 13 and 9 rows. The first has a gap, a fork and received masses.
KvCache cache_of(CacheLayout layout, CacheFormat format, Made made) {
  KvCacheOptions options;
  options.sequences = 2;
  options.kv_heads = 2;
  options.head_dim = 4;
  options.format = format;
  options.layout = layout;
  options.group = 8;
  options.page_size = 4;
  if (layout == CacheLayout::ring) {
    options.sinks = 2;
    options.window = 18;
  } else {
    options.capacity = layout == CacheLayout::paged ? 120 : 40;
  }
  KvCache cache(options);
  const std::int64_t offsets[] = {0, 13, 22}, gone[] = {3};
  cache.append(normal_tensor({1, 2, 22, 4}, 1, DType::f32), normal_tensor({1, 2, 22, 4}, 2, DType::f32),
               heed::TensorView(offsets, {3}));
  cache.add_received(normal_tensor({2, 2, 13}, 3, DType::f32));
  (void)cache.fork(0);
  cache.evict(0, gone);
  if (made == Made::copied) return cache.copy();
  return made == Made::restored ? heed::test::restored(cache) : std::move(cache);
}

struct Snapshot {
  std::vector<std::int64_t> lengths;
  std::vector<std::vector<std::int64_t>> positions;
  std::vector<Tensor> rows;
  std::int64_t held = 0, capacity = 0, free_pages = 0, shared_pages = 0;

  explicit Snapshot(const KvCache& cache) {
    for (std::int64_t s = 0; s < cache.sequences(); ++s) {
      lengths.push_back(cache.length(s));
      positions.push_back(cache.positions(s));
      rows.push_back(cache.keys(s));
      rows.push_back(cache.values(s));
      rows.push_back(cache.received(s));
    }
    const heed::KvCacheStats stats = cache.stats();
    held = stats.rows;
    capacity = stats.capacity;
    free_pages = stats.free_pages;
    shared_pages = stats.shared_pages;
  }
};

void expect_same(const Snapshot& a, const Snapshot& b) {
  EXPECT_EQ(a.lengths, b.lengths);
  EXPECT_EQ(a.positions, b.positions);
  ASSERT_EQ(a.rows.size(), b.rows.size());
  for (std::size_t i = 0; i < a.rows.size(); ++i) EXPECT_TRUE(heed::test::same_bits(a.rows[i], b.rows[i]));
  EXPECT_EQ(a.held, b.held);
  EXPECT_EQ(a.capacity, b.capacity);
  EXPECT_EQ(a.free_pages, b.free_pages);
  EXPECT_EQ(a.shared_pages, b.shared_pages);
}

class KvCacheMemory : public testing::TestWithParam<std::tuple<CacheLayout, CacheFormat, Made>> {
 protected:
  // Runs the operation with each of its allocations failing in turn, and then without a failure.
  using Operation = std::function<void(KvCache&)>;
  void expect_whole_or_nothing(
      const Operation& operation, const Operation& next = go_on, const Operation& first = [](KvCache&) {}) {
    const auto [layout, format, made] = GetParam();
    KvCache right = cache_of(layout, format, made);
    first(right);
    operation(right);
    const Snapshot after(right);
    next(right);
    const Snapshot later(right);
    for (int number = 0; number < 1000; ++number) {
      SCOPED_TRACE("allocation " + std::to_string(number));
      KvCache cache = cache_of(layout, format, made);
      first(cache);
      const Snapshot before(cache);
      bool failed = false;
      allocations = 0;
      fail_at = number;
      failing = true;
      try {
        operation(cache);
      } catch (const heed::Error& error) {
        failed = error.code() == heed::ErrorCode::out_of_memory;
      }
      failing = false;
      if (failed) {
        expect_same(before, Snapshot(cache));
        operation(cache);
      }
      expect_same(after, Snapshot(cache));
      next(cache);
      expect_same(later, Snapshot(cache));
      if (!failed || HasFailure()) return;
    }
    ADD_FAILURE() << "a thousand allocations";
  }

  // Appends to all sequences, so that every free slot is used, and takes some rows back.
  static void go_on(KvCache& cache) {
    const std::int64_t batch = cache.sequences();
    cache.append(normal_tensor({batch, 2, 9, 4}, 7, DType::f32),
                 normal_tensor({batch, 2, 9, 4}, 8, DType::f32));
    for (std::int64_t s = 0; s < batch; ++s) cache.truncate(s, cache.length(s) - 3);
  }

  Tensor key_ = normal_tensor({1, 2, 16, 4}, 5, DType::f32),
         value_ = normal_tensor({1, 2, 16, 4}, 6, DType::f32);
};

TEST_P(KvCacheMemory, AppendIsWholeOrNothing) {
  const std::int64_t offsets[] = {0, 5, 14, 16}, all[] = {0, 0, 16, 16};
  expect_whole_or_nothing([&](KvCache& c) { c.append(key_, value_, heed::TensorView(offsets, {4})); });
  // More rows than a ring has space for.
  expect_whole_or_nothing([&](KvCache& c) { c.append(key_, value_, heed::TensorView(all, {4})); });
}
TEST_P(KvCacheMemory, TruncateIsWholeOrNothing) {
  expect_whole_or_nothing([](KvCache& c) { c.truncate(1, 3); });
  expect_whole_or_nothing([](KvCache& c) { c.clear(0); });
}
TEST_P(KvCacheMemory, ForkIsWholeOrNothing) {
  expect_whole_or_nothing([](KvCache& c) { (void)c.fork(0); });
}
TEST_P(KvCacheMemory, ReleaseIsWholeOrNothing) {
  const std::int64_t offsets[] = {0, 3, 6}, others[] = {0, 2};
  expect_whole_or_nothing([](KvCache& c) { c.release(1); },
                          [&](KvCache& c) {
                            c.append(key_.view().narrow(2, 0, 6), value_.view().narrow(2, 0, 6),
                                     heed::TensorView(offsets, {3}), others);
                            EXPECT_EQ(c.fork(0), 1);
                            go_on(c);
                          });
  expect_whole_or_nothing([](KvCache& c) { (void)c.fork(0); }, go_on, [](KvCache& c) { c.release(1); });
}
TEST_P(KvCacheMemory, CopyIsWholeOrNothing) {
  expect_whole_or_nothing([](KvCache& c) { c = c.copy(); });
}
TEST_P(KvCacheMemory, EvictIsWholeOrNothing) {
  const std::int64_t gone[] = {0, 1, 2, 5, 6, 7}, more[] = {0, 12};
  expect_whole_or_nothing([&](KvCache& c) { c.evict(1, gone); });
  expect_whole_or_nothing([&](KvCache& c) { c.evict(0, more); });  // this sequence has a gap
}
TEST_P(KvCacheMemory, ReserveIsWholeOrNothing) {
  if (std::get<0>(GetParam()) == CacheLayout::ring) return;  // a ring's capacity is fixed
  expect_whole_or_nothing([](KvCache& c) { c.reserve(300); });
}
TEST_P(KvCacheMemory, AddReceivedIsWholeOrNothing) {
  const Tensor received = normal_tensor({3, 4, 13}, 7, DType::f32);
  expect_whole_or_nothing([&](KvCache& c) { c.add_received(received, 0.5); });
}

// Counted at operator new. The KvCache object itself only holds a pointer.
TEST_P(KvCacheMemory, StatsCountAllOfIt) {
  const auto [layout, format, made] = GetParam();
  const std::int64_t before = held;
  KvCache cache = cache_of(layout, format, made);
  const auto expect_counted = [&](const std::string& after) {
    const heed::KvCacheStats stats = cache.stats();
    EXPECT_EQ(stats.bytes + stats.tail_bytes + stats.table_bytes, held - before) << after;
    // Each row has 2 heads of 4 + 4 floats, or as many 4-bit codes, and the values' scale and offset.
    EXPECT_GE(stats.bytes, stats.capacity * 2 * (format == CacheFormat::f32 ? 32 : 8)) << after;
    EXPECT_EQ(stats.tail_bytes > 0, format == CacheFormat::int4) << after;
  };
  expect_counted("making it");
  const std::int64_t offsets[] = {0, 5, 14, 16}, gone[] = {1, 4};
  cache.append(key_, value_, heed::TensorView(offsets, {4}));
  expect_counted("append");
  cache.evict(1, gone);
  expect_counted("evict");
  (void)cache.fork(1);
  expect_counted("fork");
  cache.release(2);
  expect_counted("release");
  (void)cache.fork(1);
  cache.truncate(0, 4);
  expect_counted("truncate");
  if (layout != CacheLayout::ring) cache.reserve(300);
  expect_counted("reserve");
  cache.add_received(Tensor({4, 2, std::max({cache.rows(0), cache.rows(1), cache.rows(2), cache.rows(3)})}));
  expect_counted("add_received");
}

INSTANTIATE_TEST_SUITE_P(Caches, KvCacheMemory,
                         testing::Combine(testing::Values(CacheLayout::contiguous, CacheLayout::paged,
                                                          CacheLayout::ring),
                                          testing::Values(CacheFormat::f32, CacheFormat::int4),
                                          testing::Values(Made::plain, Made::copied, Made::restored)),
                         [](const auto& one) {
                           return std::string(heed::name_of(std::get<0>(one.param))) + "_" +
                                  std::string(heed::name_of(std::get<1>(one.param))) + "_" +
                                  kMade[static_cast<std::size_t>(std::get<2>(one.param))];
                         });

}  // namespace
