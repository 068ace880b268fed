// Tests copies of caches and caches rebuilt from saved tensors: they give the same bits as the original and
// share nothing with it. Damaged tensors are refused, or give a cache that is safe to use.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "attention_support.hpp"
#include "heed/attention/kv_cache.hpp"
#include "heed/error.hpp"
#include "random_call.hpp"
#include "saved_cache.hpp"
#include "support.hpp"

namespace {

using heed::CacheFormat;
using heed::CacheLayout;
using heed::DType;
using heed::KvCache;
using heed::KvCacheOptions;
using heed::Tensor;
using heed::TensorView;
using heed::test::Draw;
using heed::test::normal_tensor;
using heed::test::restored;
using heed::test::same_bits;

constexpr std::uint64_t kSeed = 20261126;
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// Whether values are stored beside the keys or are channels of them.
enum class Values { beside_keys, in_keys };

KvCacheOptions options_of(CacheLayout layout, CacheFormat format, Values values = Values::beside_keys) {
  const bool codes = format == CacheFormat::int8 || format == CacheFormat::int4 || format == CacheFormat::fp8;
  KvCacheOptions options{.sequences = 2,
                         .kv_heads = 2,
                         .head_dim = 8,
                         .value_dim = 12,
                         .format = format,
                         .layout = layout,
                         .page_size = 3,
                         .order = heed::PageOrder::nhd,
                         .group = 8,
                         .rotate = codes && values == Values::beside_keys};
  if (values == Values::in_keys) {
    options.value_dim = 6;
    options.values_in_keys = true;
  }
  if (layout == CacheLayout::ring) {
    options.sinks = 2;
    options.window = 21;
  } else {
    options.capacity = layout == CacheLayout::paged ? 300 : 70;
  }
  return options;
}

void append(KvCache& cache, std::int64_t sequence, std::int64_t rows, std::uint64_t seed) {
  const std::int64_t offsets[] = {0, rows}, which[] = {sequence};
  const Tensor key = normal_tensor({1, 2, rows, 8}, seed, DType::f32);
  if (cache.values_in_keys()) return cache.append_keys(key, TensorView(offsets, {2}), which);
  cache.append(key, normal_tensor({1, 2, rows, 12}, seed + 1, DType::f32), TensorView(offsets, {2}), which);
}

// A cache with sequences of several lengths, gaps, forks, a released sequence and received masses.
KvCache lived(CacheLayout layout, CacheFormat format, Values values = Values::beside_keys) {
  KvCache cache(options_of(layout, format, values));
  append(cache, 0, 29, 1);
  append(cache, 1, 10, 3);
  (void)cache.fork(0);
  (void)cache.fork(1);
  append(cache, 2, 5, 5);
  cache.release(1);
  const std::int64_t gone[] = {9, 10, 17}, which[] = {0, 2, 3};
  cache.evict(0, layout == CacheLayout::ring ? std::span(gone).subspan(1) : std::span(gone));
  cache.add_received(
      normal_tensor({3, 4, std::max({cache.rows(0), cache.rows(2), cache.rows(3)})}, 7, DType::f32), 0.5,
      which);
  return cache;
}

// Applies more operations of every kind.
void go_on(KvCache& cache) {
  cache.truncate(2, cache.length(2) - 11);
  append(cache, 2, 4, 11);
  append(cache, 0, 20, 13);
  const std::int64_t gone[] = {cache.positions(3).back()};
  cache.evict(3, gone);
  append(cache, 3, 7, 15);
  append(cache, cache.fork(3), 9, 17);
}

void expect_same(const KvCache& a, const KvCache& b) {
  ASSERT_EQ(a.sequences(), b.sequences());
  for (std::int64_t s = 0; s < a.sequences(); ++s) {
    SCOPED_TRACE("sequence " + std::to_string(s));
    EXPECT_EQ(a.length(s), b.length(s));
    EXPECT_EQ(a.positions(s), b.positions(s));
    EXPECT_TRUE(same_bits(a.keys(s), b.keys(s)));
    EXPECT_TRUE(same_bits(a.values(s), b.values(s)));
    EXPECT_TRUE(same_bits(a.received(s), b.received(s)));
  }
  const heed::KvCacheStats x = a.stats(), y = b.stats();
  EXPECT_EQ(std::tie(x.rows, x.capacity, x.pages, x.free_pages, x.shared_pages),
            std::tie(y.rows, y.capacity, y.pages, y.free_pages, y.shared_pages));
  EXPECT_LE(y.bytes, x.bytes);  // vectors of scales may have spare capacity
}

Tensor attended(const KvCache& cache, std::int64_t sequence) {
  const std::int64_t which[] = {sequence};
  return heed::attention(normal_tensor({1, 4, 2, 8}, 19, DType::f32), cache, {.causal = true},
                         {.sequences = which})
      .output;
}

class KvCacheCopy : public testing::TestWithParam<std::tuple<CacheLayout, CacheFormat, Values>> {};

TEST_P(KvCacheCopy, ContinuesWithTheSameBitsAndSharesNothing) {
  const auto [layout, format, values] = GetParam();
  for (const bool by_tensors : {false, true}) {
    SCOPED_TRACE(by_tensors ? "tensors" : "copy");
    KvCache cache = lived(layout, format, values);
    KvCache copy = by_tensors ? restored(cache) : cache.copy();
    expect_same(cache, copy);
    EXPECT_TRUE(same_bits(attended(cache, 0), attended(copy, 0)));
    EXPECT_THROW((void)attended(copy, 1), heed::Error);  // sequence 1 is released
    go_on(copy);
    expect_same(lived(layout, format, values), cache);
    go_on(cache);
    expect_same(cache, copy);
    for (const std::int64_t sequence : {0, 1, 2, 3})
      EXPECT_TRUE(same_bits(attended(cache, sequence), attended(copy, sequence)));
  }
}

// The tails keep the exact rows that truncation restores.
TEST_P(KvCacheCopy, TruncatesToTheSameBits) {
  const auto [layout, format, values] = GetParam();
  for (std::int64_t back = 0; back <= 29; back += layout == CacheLayout::ring ? 30 : 1) {
    KvCache cache(options_of(layout, format, values));
    append(cache, 0, 29, 1);
    KvCache copy = restored(cache);
    cache.truncate(0, 29 - back);
    copy.truncate(0, 29 - back);
    append(cache, 0, 9, 5);
    append(copy, 0, 9, 5);
    expect_same(cache, copy);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Caches, KvCacheCopy,
    testing::Combine(testing::Values(CacheLayout::contiguous, CacheLayout::paged, CacheLayout::ring),
                     testing::Values(CacheFormat::f32, CacheFormat::bf16, CacheFormat::f16, CacheFormat::int8,
                                     CacheFormat::int4, CacheFormat::fp8),
                     testing::Values(Values::beside_keys, Values::in_keys)),
    [](const auto& one) {
      return std::string(heed::name_of(std::get<0>(one.param))) + "_" +
             std::string(heed::name_of(std::get<1>(one.param))) +
             (std::get<2>(one.param) == Values::in_keys ? "_values_in_keys" : "");
    });

TEST(KvCacheCopyOfBorrowed, OwnsItsMemoryAndGrows) {
  Tensor key = normal_tensor({2, 2, 6, 8}, 1, DType::f32),
         value = normal_tensor({2, 2, 6, 12}, 2, DType::f32);
  const std::int64_t lengths[] = {6, 4};
  const KvCache over =
      KvCache::over(std::as_const(key).view(), std::as_const(value).view(), TensorView(lengths, {2}));
  KvCache copy = over.copy();
  expect_same(restored(over), copy);
  EXPECT_TRUE(same_bits(copy.keys(0), key.view().select(0, 0)));
  const Tensor before = copy.keys(1);
  std::ranges::fill(key.values<float>(), 7.0f);
  EXPECT_TRUE(same_bits(copy.keys(1), before));
  copy.reserve(20);
  append(copy, 0, 9, 5);
  EXPECT_EQ(copy.fork(1), 2);
  append(copy, 2, 3, 7);
  EXPECT_EQ(copy.length(0), 15);
  EXPECT_EQ(copy.length(1), 4);
  EXPECT_EQ(copy.length(2), 7);
}

// The pool interleaves keys and values, and its pages exceed the limit of owning caches.
TEST(KvCacheCopyOfBorrowed, HasThePagesOfTheBlockTable) {
  const Tensor pool = normal_tensor({5, 2, 300, 2, 8}, 1, DType::f32);  // [pages, keys | values, row, Hkv, D]
  const TensorView key = pool.view().select(1, 0), value = pool.view().select(1, 1);
  const std::int64_t table[] = {3, 0, 3, 4}, lengths[] = {450, 301};
  const KvCache over =
      KvCache::over_block_table(key, value, TensorView(table, {2, 2}), TensorView(lengths, {2}));
  KvCache copy = over.copy();
  expect_same(restored(over), copy);
  for (const std::int64_t s : {0, 1}) {
    EXPECT_TRUE(same_bits(copy.keys(s), over.keys(s)));
    EXPECT_TRUE(same_bits(copy.values(s), over.values(s)));
    EXPECT_TRUE(same_bits(attended(copy, s), attended(over, s)));
  }
  EXPECT_EQ(copy.stats().free_pages, 2);
  EXPECT_EQ(copy.stats().shared_pages, 1);
  const std::int64_t offsets[] = {0, 2, 2};  // sequence 0 appends beside a shared page
  const Tensor rows = normal_tensor({1, 2, 2, 8}, 9, DType::f32);
  copy.append(rows, rows, TensorView(offsets, {3}));
  EXPECT_TRUE(same_bits(copy.keys(1), over.keys(1)));
}

std::string message_of(const NamedTensors& tensors) {
  try {
    (void)restored(tensors);
  } catch (const heed::Error& error) {
    return error.what();
  }
  return "";
}

TEST(SavedKvCache, RefusesWrongTensorsInOneSentence) {
  const auto with = [](const char* name, const std::function<void(Tensor&)>& change) {
    NamedTensors tensors = lived(CacheLayout::paged, CacheFormat::fp8).tensors();
    for (auto& [known, tensor] : tensors)
      if (known == name) change(tensor);
    return message_of(tensors);
  };
  const auto number = [&](const char* name, std::size_t at, std::int64_t value) {
    return with(name, [&](Tensor& tensor) {
      if (tensor.dtype() == DType::i64) tensor.values<std::int64_t>()[at] = value;
      if (tensor.dtype() == DType::i32) tensor.values<std::int32_t>()[at] = static_cast<std::int32_t>(value);
      if (tensor.dtype() == DType::u8) tensor.values<std::uint8_t>()[at] = static_cast<std::uint8_t>(value);
      if (tensor.dtype() == DType::f32) tensor.values<float>()[at] = HUGE_VALF;
    });
  };
  EXPECT_EQ(with("key", [](Tensor&) {}), "");
  EXPECT_EQ(message_of({}), "the saved cache lacks 'cache'; a tensor of that name is expected");
  EXPECT_EQ(number("cache", 0, 3), "the saved cache has version 3; 1 or 2 is expected");
  EXPECT_EQ(number("cache", 1, 6), "format is 6; 0 to 5 is expected");
  EXPECT_EQ(number("cache", 6, 0), "value_dim is 0; 1 to 2147483647 is expected");
  EXPECT_EQ(number("cache", 12, -1), "pages is -1; 0 to 2147483647 is expected");
  EXPECT_EQ(with("key", [](Tensor& t) { t = Tensor({2}); }),
            "key of the saved cache is f32 [2]; u8 [18, 2, 3, 8] is expected");
  EXPECT_EQ(number("value", 5, 0xff),
            "value of the saved cache contains the fp8 code 255, which is NaN; a number is expected");
  EXPECT_EQ(with("lengths",
                 [](Tensor& t) {
                   t = Tensor({2, 2}, DType::i64);
                 }),
            "lengths of the saved cache has shape [2, 2]; one axis is expected");
  EXPECT_EQ(with("tail_begins", [](Tensor& t) { t = Tensor({2}, DType::i64); }),
            "tail_begins of the saved cache has 2 numbers; 4 are expected");
  EXPECT_EQ(number("released", 0, 4),
            "released of the saved cache names sequence 4; 0 to 3, without repetition, is expected");
  const auto unfit = [](const std::string& what) {
    return what + " of the saved cache does not match its other tensors; tensors of one cache are expected";
  };
  EXPECT_EQ(number("lengths", 0, -1), unfit("0.length"));
  EXPECT_EQ(number("lengths", 3, 12), unfit("3.slots"));
  EXPECT_EQ(number("tail_begins", 0, 25), unfit("0.tail_begin"));
  EXPECT_EQ(number("0.pages", 0, 100), unfit("0.pages"));
  EXPECT_EQ(number("0.slots", 0, -5), unfit("0.slots"));
  EXPECT_EQ(number("0.positions", 3, 2), unfit("0.positions"));
  EXPECT_EQ(number("0.groups", 0, -1), unfit("0.groups"));
  EXPECT_EQ(number("0.groups", 0, 77), unfit("0.groups"));
  EXPECT_EQ(number("0.key_tail", 0, 1), unfit("0.key_tail"));
  EXPECT_EQ(with("0.received", [](Tensor& t) { t = Tensor({5}); }),
            "0.received of the saved cache has 5 numbers; 52 are expected");

  NamedTensors ring = lived(CacheLayout::ring, CacheFormat::f32).tensors();
  ring.front().second.values<std::int64_t>()[7] = 24;
  EXPECT_EQ(message_of(ring), "the saved ring has room for 24 rows; sinks + window = 23 is expected");
  NamedTensors shared = lived(CacheLayout::contiguous, CacheFormat::f32).tensors();
  for (auto& [name, tensor] : shared)
    for (const char* what : {"slots", "free_slots", "pages", "positions"})
      if (name == "2." + std::string(what))
        for (const auto& [other, first] : NamedTensors(shared))
          if (other == "0." + std::string(what)) tensor = first;
  EXPECT_NE(message_of(shared), "");
}

TEST(SavedKvCache, ScalesAreFiniteAndNotNegativeAndOffsetsFinite) {
  const auto refusal = [](const std::string& name, std::uint16_t bits) {
    NamedTensors tensors = lived(CacheLayout::paged, CacheFormat::int4).tensors();
    for (auto& [one, tensor] : tensors)
      if (one == name) static_cast<std::uint16_t*>(tensor.mutable_view().data())[0] = bits;
    return heed::test::message_of([&] { (void)restored(tensors); });
  };
  constexpr std::uint16_t minus_one = 0xbf80, infinity = 0x7f80;
  for (const std::string name : {"key_scale", "value_scale"}) {
    const std::string subject = "the tensor '" + name + "' has ";
    EXPECT_EQ(refusal(name, minus_one), subject + "-1; finite numbers from 0 on are expected");
    EXPECT_EQ(refusal(name, infinity), subject + "inf; finite numbers from 0 on are expected");
  }
  for (const std::string name : {"key_offset", "value_offset"}) {
    EXPECT_EQ(refusal(name, minus_one), "no error");
    EXPECT_EQ(refusal(name, infinity), "the tensor '" + name + "' has inf; finite numbers are expected");
  }
}

// Each case changes one element, shape or tensor. A cache that is not refused runs all operations.
TEST(SavedKvCache, DamagedTensorsAreRefusedOrSafe) {
  std::int64_t refused = 0, used = 0;
  for (std::uint64_t at = 0; at < heed::test::share_of(1000); ++at) {
    SCOPED_TRACE("damage " + std::to_string(at));
    Draw draw(kSeed, at);
    const auto layout =
        draw.pick<CacheLayout>({CacheLayout::contiguous, CacheLayout::paged, CacheLayout::ring});
    const auto format = draw.pick<CacheFormat>(
        {CacheFormat::f32, CacheFormat::f16, CacheFormat::int8, CacheFormat::int4, CacheFormat::fp8});
    const Values values = draw.chance(0.3) ? Values::in_keys : Values::beside_keys;
    NamedTensors tensors = lived(layout, format, values).tensors();
    const auto chosen =
        static_cast<std::size_t>(draw.between(0, static_cast<std::int64_t>(tensors.size()) - 1));
    Tensor& tensor = tensors[chosen].second;
    const auto count = tensor.count();
    if (draw.chance(0.1)) {
      tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(chosen));
    } else if (count == 0 || draw.chance(0.1)) {
      tensor = Tensor({draw.between(0, 40)}, tensor.dtype());
    } else if (tensor.dtype() == DType::i64 || tensor.dtype() == DType::i32) {
      const auto place = static_cast<std::size_t>(draw.between(0, count - 1));
      const std::int64_t value = draw.chance(0.2) ? -1 : draw.between(0, 60);
      if (tensor.dtype() == DType::i64)
        tensor.values<std::int64_t>()[place] = value;
      else
        tensor.values<std::int32_t>()[place] = static_cast<std::int32_t>(value);
    } else {
      auto* bytes = static_cast<std::uint8_t*>(tensor.mutable_view().data());
      const auto size = count * static_cast<std::int64_t>(heed::size_of(tensor.dtype()));
      bytes[draw.between(0, size - 1)] = static_cast<std::uint8_t>(draw.between(0, 255));
    }
    try {
      KvCache cache = restored(tensors);
      ++used;
      for (std::int64_t s = 0; s < cache.sequences(); ++s) {
        (void)cache.keys(s);
        (void)cache.values(s);
      }
      (void)attended(cache, 0);
      go_on(cache);
      (void)attended(cache, 2);
    } catch (const heed::Error&) {
      ++refused;
    }
  }
  EXPECT_GT(used, 0);
  EXPECT_GT(refused, 0);
}

}  // namespace
