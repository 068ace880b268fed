// Every way in which caches, tables and calls over caches can be wrong, and the resulting message. Afterwards
// the cache must be the same, bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "attention_support.hpp"
#include "heed/attention/kv_cache.hpp"
#include "support.hpp"

namespace {

using heed::AttentionOptions;
using heed::CacheFormat;
using heed::CacheLayout;
using heed::CacheQuery;
using heed::Dims;
using heed::DType;
using heed::KvCache;
using heed::KvCacheOptions;
using heed::MutableTensorView;
using heed::PageOrder;
using heed::Tensor;
using heed::TensorView;
using heed::test::message_of;
using heed::test::normal_tensor;

constexpr std::int64_t kFar = std::int64_t{1} << 31;  // one row too many
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();

// Hkv 2, D 4, Dv 6, with space for 12 rows of each of two sequences, or for 24 rows in pages of 4.
KvCacheOptions options_of(CacheLayout layout, CacheFormat format = CacheFormat::f32) {
  KvCacheOptions options;
  options.sequences = 2;
  options.kv_heads = 2;
  options.head_dim = 4;
  options.value_dim = 6;
  options.format = format;
  options.layout = layout;
  options.group = 8;
  if (layout == CacheLayout::ring) {
    options.sinks = 1;
    options.window = 5;
  } else {
    options.capacity = layout == CacheLayout::paged ? 24 : 12;
    options.page_size = 4;
  }
  return options;
}

Tensor integers(const std::vector<std::int64_t>& numbers, const Dims& shape, DType dtype = DType::i64) {
  return Tensor::copy_of(Tensor::from(std::span<const std::int64_t>(numbers), shape), dtype);
}
Tensor integers(const std::vector<std::int64_t>& numbers) {
  return integers(numbers, {static_cast<std::int64_t>(numbers.size())});
}

Tensor keys_of(std::int64_t batch, std::int64_t rows, DType dtype = DType::f32) {
  return normal_tensor({batch, 2, rows, 4}, 3, dtype);
}
Tensor values_of(std::int64_t batch, std::int64_t rows, DType dtype = DType::f32) {
  return normal_tensor({batch, 2, rows, 6}, 4, dtype);
}

// All observable state of a cache.
struct Snapshot {
  std::vector<std::int64_t> lengths;
  std::vector<std::vector<std::int64_t>> positions;
  std::vector<Tensor> rows;  // keys, values and received masses of each sequence
  heed::KvCacheStats stats;

  explicit Snapshot(const KvCache& cache) : stats(cache.stats()) {
    for (std::int64_t s = 0; s < cache.sequences(); ++s) {
      lengths.push_back(cache.length(s));
      positions.push_back(cache.positions(s));
      rows.push_back(cache.keys(s));
      rows.push_back(cache.values(s));
      rows.push_back(cache.received(s));
    }
  }
};

void expect_same(const Snapshot& a, const Snapshot& b) {
  EXPECT_EQ(a.lengths, b.lengths);
  EXPECT_EQ(a.positions, b.positions);
  ASSERT_EQ(a.rows.size(), b.rows.size());
  for (std::size_t i = 0; i < a.rows.size(); ++i) EXPECT_TRUE(heed::test::same_bits(a.rows[i], b.rows[i]));
  EXPECT_EQ(std::memcmp(&a.stats, &b.stats, sizeof a.stats), 0);  // numbers of one size, without padding
}

// A cache that must refuse operations and stay the same.
class Refusing {
 public:
  explicit Refusing(KvCache cache) : cache_(std::move(cache)) {}

  void expect(const std::string& sentence, const std::function<void(KvCache&)>& operation) {
    const Snapshot before(cache_);
    EXPECT_EQ(message_of([&] { operation(cache_); }), sentence);
    expect_same(before, Snapshot(cache_));
  }
  KvCache& cache() { return cache_; }

 private:
  KvCache cache_;
};

// Sequences of 5 and 3 rows, some of which have received mass.
Refusing filled(const KvCacheOptions& options) {
  KvCache cache(options);
  cache.append(keys_of(1, 8), values_of(1, 8), integers({0, 5, 8}));
  cache.add_received(normal_tensor({2, 4, 5}, 5, DType::f32));
  return Refusing(std::move(cache));
}
Refusing filled(CacheLayout layout, CacheFormat format = CacheFormat::f32) {
  return filled(options_of(layout, format));
}

// ---- Options ----------------------------------------------------------------------------------------------

std::string message_of_options(const std::function<void(KvCacheOptions&)>& change,
                               CacheLayout layout = CacheLayout::contiguous,
                               CacheFormat format = CacheFormat::f32) {
  KvCacheOptions options = options_of(layout, format);
  change(options);
  return message_of([&] { KvCache cache(options); });
}

TEST(KvCacheErrors, OptionsThatAreRightHaveNone) {
  for (const CacheLayout layout : {CacheLayout::contiguous, CacheLayout::paged, CacheLayout::ring})
    for (const CacheFormat format : {CacheFormat::f32, CacheFormat::bf16, CacheFormat::f16, CacheFormat::int8,
                                     CacheFormat::int4, CacheFormat::fp8})
      EXPECT_EQ(message_of_options([](KvCacheOptions&) {}, layout, format), "no error");
}

TEST(KvCacheErrors, NumbersOfOptionsAreInTheirRanges) {
  const auto message = [](std::int64_t KvCacheOptions::*member, std::int64_t value,
                          CacheLayout layout = CacheLayout::contiguous,
                          CacheFormat format = CacheFormat::f32) {
    return message_of_options([&](KvCacheOptions& o) { o.*member = value; }, layout, format);
  };
  EXPECT_EQ(message(&KvCacheOptions::sequences, -1), "sequences is -1; 0 to 1048576 is expected");
  EXPECT_EQ(message(&KvCacheOptions::sequences, kMax),
            "sequences is 9223372036854775807; 0 to 1048576 is expected");
  EXPECT_EQ(message(&KvCacheOptions::kv_heads, 0), "kv_heads is 0; 1 to 65536 is expected");
  EXPECT_EQ(message(&KvCacheOptions::kv_heads, 65537), "kv_heads is 65537; 1 to 65536 is expected");
  EXPECT_EQ(message(&KvCacheOptions::head_dim, 0), "head_dim is 0; 1 to 1048576 is expected");
  EXPECT_EQ(message(&KvCacheOptions::head_dim, kLeast),
            "head_dim is -9223372036854775808; 1 to 1048576 is expected");
  EXPECT_EQ(message(&KvCacheOptions::value_dim, -1), "value_dim is -1; 1 to 1048576 is expected");
  EXPECT_EQ(message(&KvCacheOptions::capacity, 0), "capacity is 0; 1 to 2147483647 is expected");
  EXPECT_EQ(message(&KvCacheOptions::capacity, kFar), "capacity is 2147483648; 1 to 2147483647 is expected");
  EXPECT_EQ(message(&KvCacheOptions::capacity, -1, CacheLayout::paged),
            "capacity is -1; 0 to 2147483647 is expected");
  EXPECT_EQ(message(&KvCacheOptions::page_size, 0, CacheLayout::paged),
            "page_size is 0; 1 to 256 is expected");
  EXPECT_EQ(message(&KvCacheOptions::page_size, 257, CacheLayout::paged),
            "page_size is 257; 1 to 256 is expected");
  EXPECT_EQ(message(&KvCacheOptions::sinks, -1, CacheLayout::ring),
            "sinks is -1; 0 to 1073741823 is expected");
  EXPECT_EQ(message(&KvCacheOptions::window, 0, CacheLayout::ring),
            "window is 0; 1 to 1073741823 is expected");
  EXPECT_EQ(message(&KvCacheOptions::group, 4, CacheLayout::paged, CacheFormat::int8),
            "group is 4; 8 to 256 is expected");
  EXPECT_EQ(message(&KvCacheOptions::group, 512, CacheLayout::paged, CacheFormat::fp8),
            "group is 512; 8 to 256 is expected");
  EXPECT_EQ(message(&KvCacheOptions::group, 24, CacheLayout::paged, CacheFormat::int4),
            "group is 24; a power of two is expected");
}

TEST(KvCacheErrors, OptionsBelongTogether) {
  EXPECT_EQ(message_of_options([](KvCacheOptions& o) { o.rotate = true; }),
            "rotate is set for a cache of f32; int8, int4 or fp8 is expected with it");
  EXPECT_EQ(
      message_of_options([](KvCacheOptions& o) { o.head_dim = 5; }, CacheLayout::paged, CacheFormat::int4),
      "head_dim is 5; an even number is expected for int4");
  EXPECT_EQ(
      message_of_options([](KvCacheOptions& o) { o.value_dim = 3; }, CacheLayout::paged, CacheFormat::int4),
      "value_dim is 3; an even number is expected for int4");
  EXPECT_EQ(message_of_options([](KvCacheOptions& o) { o.sinks = 2; }),
            "sinks is 2 and window 0 in a contiguous cache; 0 is expected for both outside a ring");
  EXPECT_EQ(message_of_options([](KvCacheOptions& o) { o.window = 3; }, CacheLayout::paged),
            "sinks is 0 and window 3 in a paged cache; 0 is expected for both outside a ring");
  EXPECT_EQ(message_of_options([](KvCacheOptions& o) { o.capacity = 9; }, CacheLayout::ring),
            "capacity is 9 in a ring, which has room for sinks + window; 0 is expected");
  EXPECT_EQ(message_of_options([](KvCacheOptions& o) { o.capacity = kFar - 1; }),
            "the cache would have 2 pages of 2 heads and 2147483647 rows; fewer than 2^31 rows of heads are "
            "expected");
}

TEST(KvCacheErrors, EnumeratorsExist) {
  EXPECT_EQ(message_of_options([](KvCacheOptions& o) { o.format = static_cast<CacheFormat>(6); }),
            "format is 6; 0 to 5 is expected");
  EXPECT_EQ(message_of_options([](KvCacheOptions& o) { o.format = static_cast<CacheFormat>(255); }),
            "format is 255; 0 to 5 is expected");
  EXPECT_EQ(message_of_options([](KvCacheOptions& o) { o.layout = static_cast<CacheLayout>(3); }),
            "layout is 3; 0 to 2 is expected");
  for (const CacheLayout layout : {CacheLayout::contiguous, CacheLayout::paged, CacheLayout::ring})
    EXPECT_EQ(message_of_options([](KvCacheOptions& o) { o.order = static_cast<PageOrder>(2); }, layout),
              "order is 2; 0 to 1 is expected");
  EXPECT_EQ(heed::name_of(static_cast<CacheFormat>(6)), "");
  EXPECT_EQ(heed::name_of(static_cast<CacheLayout>(255)), "");
}

// ---- Appending --------------------------------------------------------------------------------------------

void expect_bad_rows_are_refused(Refusing cache) {
  const Tensor key = keys_of(2, 1), value = values_of(2, 1);
  const auto append = [](const TensorView& k, const TensorView& v) {
    return [&k, &v](KvCache& c) { c.append(k, v); };
  };
  const auto expect = [&](const std::string& sentence, const TensorView& k, const TensorView& v) {
    cache.expect(sentence, append(k, v));
  };
  expect("key has dtype f64; f32, f16 or bf16 is expected", keys_of(2, 1, DType::f64), value);
  expect("value has dtype f64; f32, f16 or bf16 is expected", key, values_of(2, 1, DType::f64));
  expect("key has dtype i64; f32, f16 or bf16 is expected", integers({1, 2}, {1, 2}), value);
  expect("key has shape [4]; 2 to 4 axes, [B, H, L, D], are expected", normal_tensor({4}, 1, DType::f32),
         value);
  expect("key has shape [1, 2, 1, 4]; [2, 2, rows, 4] is expected", keys_of(1, 1), value);
  expect("value has shape [1, 2, 1, 6]; [2, 2, rows, 6] is expected", key, values_of(1, 1));
  expect("key has shape [2, 3, 1, 4]; [2, 2, rows, 4] is expected",
         normal_tensor({2, 3, 1, 4}, 1, DType::f32), value);
  expect("key has shape [2, 2, 1, 6]; [2, 2, rows, 4] is expected", values_of(2, 1), value);
  expect("value has 2 rows; 1 as in key are expected", key, values_of(2, 2));
  const auto* bytes = static_cast<const std::byte*>(value.view().data());
  expect("value is not aligned; its f32 data is expected at a multiple of 4 bytes", key,
         TensorView(bytes + 1, DType::f32, {2, 2, 1, 6}));
}

void expect_bad_batches_are_refused(Refusing cache) {
  const Tensor key = keys_of(1, 3), value = values_of(1, 3);
  const auto expect = [&](const std::string& sentence, const TensorView& offsets,
                          const std::vector<std::int64_t>& which = {}) {
    cache.expect(sentence, [&](KvCache& c) { c.append(key, value, offsets, which); });
  };
  expect("offsets has 2 numbers; 3, one more than sequences, are expected", integers({0, 3}));
  expect("offsets has 3 numbers; 2, one more than sequences, are expected", integers({0, 1, 3}), {1});
  expect("offsets run from 1 to 3; 0 to 3, in non-decreasing order, is expected", integers({1, 2, 3}));
  expect("offsets run from -1 to 3; 0 to 3, in non-decreasing order, is expected", integers({-1, 1, 3}));
  expect("offsets run from 0 to 2; 0 to 3, in non-decreasing order, is expected", integers({0, 1, 2}));
  expect("offsets run from 0 to 4; 0 to 3, in non-decreasing order, is expected", integers({0, 1, 4}));
  expect("offsets run from 0 to 3; 0 to 3, in non-decreasing order, is expected", integers({0, 4, 3}));
  expect("offsets run from 0 to 3; 0 to 3, in non-decreasing order, is expected", integers({0, -1, 3}));
  expect("offsets has dtype f32; i64 or i32 is expected", Tensor({3}));
  expect("offsets has shape [1, 3]; one axis is expected", integers({0, 1, 3}, {1, 3}));
  expect("sequence is 2; 0 to 1 is expected", integers({0, 1, 3}), {0, 2});
  expect("sequence is -1; 0 to 1 is expected", integers({0, 1, 3}), {0, -1});
  expect("sequences has 1 twice; distinct sequences are expected", integers({0, 1, 3}), {1, 1});
  cache.expect("key has shape [2, 2, 1, 4]; [1, 2, rows, 4] is expected", [&](KvCache& c) {
    c.append(keys_of(2, 1), values_of(2, 1), integers({0, 1, 1}));
  });
  cache.expect("value has 2 rows; 3 as in key are expected", [&](KvCache& c) {
    c.append(key, values_of(1, 2), integers({0, 1, 3}));
  });
}

TEST(KvCacheErrors, RowsToAppendHaveTheirShapes) {
  for (const CacheLayout layout : {CacheLayout::contiguous, CacheLayout::paged, CacheLayout::ring})
    for (const CacheFormat format : {CacheFormat::f32, CacheFormat::bf16, CacheFormat::int4}) {
      expect_bad_rows_are_refused(filled(layout, format));
      expect_bad_batches_are_refused(filled(layout, format));
    }
}

TEST(KvCacheErrors, NumbersFitTheFormat) {
  const auto expect = [](CacheFormat format, const std::string& name, float number, const std::string& said) {
    for (const bool is_key : {true, false}) {
      Tensor key = keys_of(2, 3), value = values_of(2, 3);
      (is_key ? key : value).at<float>(1, 0, 2, 3) = number;
      filled(CacheLayout::paged, format)
          .expect((is_key ? "key has " : "value has ") + said + " at [1, 0, 2, 3]; a number that " + name +
                      " can hold is expected",
                  [&](KvCache& c) { c.append(key, value); });
    }
  };
  for (const auto& [format, name] : std::initializer_list<std::pair<CacheFormat, std::string>>{
           {CacheFormat::int8, "int8"}, {CacheFormat::int4, "int4"}, {CacheFormat::fp8, "fp8"}}) {
    expect(format, name, std::numeric_limits<float>::quiet_NaN(), "nan");
    expect(format, name, -std::numeric_limits<float>::infinity(), "-inf");
    expect(format, name, std::numeric_limits<float>::max(),
           "3.4028234663852886e+38");  // more than bf16's largest
  }
  // The smallest numbers that round to infinity.
  expect(CacheFormat::f16, "f16", 65520, "65520");
  expect(CacheFormat::bf16, "bf16", 0x1.ffp127f, "3.39617752923046e+38");
  KvCache f16(options_of(CacheLayout::paged, CacheFormat::f16));
  Tensor key = keys_of(2, 1);
  key.at<float>(0, 0, 0, 0) = 65519.996f;
  key.at<float>(0, 0, 0, 1) = std::numeric_limits<float>::infinity();
  EXPECT_EQ(message_of([&] { f16.append(key, values_of(2, 1)); }), "no error");
  EXPECT_EQ(f16.keys(0).at<float>(0, 0, 0), 65504);
  KvCache bf16(options_of(CacheLayout::paged, CacheFormat::bf16));
  key.at<float>(0, 0, 0, 0) = std::nextafter(0x1.ffp127f, 0.0f);
  EXPECT_EQ(message_of([&] { bf16.append(key, values_of(2, 1)); }), "no error");
  EXPECT_EQ(bf16.keys(0).at<float>(0, 0, 0), 0x1.fep127f);
}

// The largest numbers that are accepted are read as finite numbers, rotated or not.
TEST(KvCacheErrors, TheLargestNumbersOfCodesStayFinite) {
  for (const CacheFormat format : {CacheFormat::int8, CacheFormat::int4, CacheFormat::fp8})
    for (const bool rotate : {false, true}) {
      KvCacheOptions options = options_of(CacheLayout::contiguous, format);
      options.rotate = rotate;
      options.capacity = 64;
      const float most = rotate ? 0x1.fep127f / static_cast<float>(options.head_dim) : 0x1.fep127f;
      Tensor key = keys_of(2, 64), value = values_of(2, 64);
      for (float& x : key.values<float>()) x = x < 0 ? -most : most;
      for (float& x : value.values<float>()) x = x < 0 ? -0x1.fep127f : 0x1.fep127f;
      KvCache cache(options);
      cache.append(key, value);
      const KvCache copy = cache.copy();  // checks scales and offsets
      for (const Tensor& rows : {copy.keys(0), copy.values(0)})
        for (const float x : rows.values<float>()) ASSERT_TRUE(std::isfinite(x)) << name_of(format);
      key.at<float>(0, 0, 1, 2) = std::nextafter(most, std::numeric_limits<float>::infinity());
      EXPECT_NE(message_of([&] { cache.append(key, value); }), "no error");
    }
}

TEST(KvCacheErrors, ThereIsRoom) {
  filled(CacheLayout::contiguous)
      .expect("sequence 0 has room for 7 more rows, but 8 arrived; reserve() makes room",
              [](KvCache& c) { c.append(keys_of(2, 8), values_of(2, 8)); });
  filled(CacheLayout::paged)
      .expect(
          "the rows to append need 4 pages, but 3 of 6 are free; reserve(), evict() and clear() make room",
          [](KvCache& c) { c.append(keys_of(2, 9), values_of(2, 9)); });
  // A shared page is copied before it is written.
  Refusing forked = filled(CacheLayout::paged);
  (void)forked.cache().fork(0);
  (void)forked.cache().fork(0);
  (void)forked.cache().fork(0);
  forked.expect(
      "the rows to append need 4 pages, but 3 of 6 are free; reserve(), evict() and clear() make room",
      [](KvCache& c) {
        const std::int64_t which[] = {0, 2, 3, 4};
        c.append(keys_of(1, 8), values_of(1, 8), integers({0, 1, 2, 3, 8}), which);
      });
  // One number repeated as a view of 2^31 rows, which can be read. It has too many positions, whatever its
  // bytes.
  const float one = 1;
  const TensorView key(&one, {1, 2, kFar, 4}, {0, 0, 0, 0}), value(&one, {1, 2, kFar, 6}, {0, 0, 0, 0});
  filled(CacheLayout::ring)
      .expect("sequence 1 would be 2147483651 positions long; fewer than 2^31 are expected", [&](KvCache& c) {
        const std::int64_t which[] = {1};
        c.append(key, value, integers({0, kFar}), which);
      });
}

// ---- Other operations -------------------------------------------------------------------------------------

TEST(KvCacheErrors, SequencesAndLengthsExist) {
  for (const CacheLayout layout : {CacheLayout::contiguous, CacheLayout::paged, CacheLayout::ring}) {
    Refusing cache = filled(layout, CacheFormat::int8);
    for (const std::int64_t number : {std::int64_t{2}, std::int64_t{-1}, kMax, kLeast}) {
      const std::string sentence = "sequence is " + std::to_string(number) + "; 0 to 1 is expected";
      cache.expect(sentence, [&](KvCache& c) { c.truncate(number, 0); });
      cache.expect(sentence, [&](KvCache& c) { c.clear(number); });
      cache.expect(sentence, [&](KvCache& c) { (void)c.fork(number); });
      cache.expect(sentence, [&](KvCache& c) { c.evict(number, {}); });
      cache.expect(sentence, [&](KvCache& c) { (void)c.length(number); });
      cache.expect(sentence, [&](KvCache& c) { (void)c.rows(number); });
      cache.expect(sentence, [&](KvCache& c) { (void)c.positions(number); });
      cache.expect(sentence, [&](KvCache& c) { (void)c.keys(number); });
      cache.expect(sentence, [&](KvCache& c) { (void)c.values(number); });
      cache.expect(sentence, [&](KvCache& c) { (void)c.received(number); });
    }
    cache.expect("length is 6; 0 to 5, the length of sequence 0, is expected",
                 [](KvCache& c) { c.truncate(0, 6); });
    cache.expect("length is -1; 0 to 3, the length of sequence 1, is expected",
                 [](KvCache& c) { c.truncate(1, -1); });
  }
}

TEST(KvCacheErrors, ReleasedSequencesAreNotUsed) {
  const std::string sentence = "sequence is 1, which is released; a sequence in use is expected";
  const Tensor query = normal_tensor({2, 4, 1, 4}, 9, DType::f32), offsets = integers({0, 1});
  const std::vector<std::int64_t> one{1}, both{0, 1};
  for (const CacheLayout layout : {CacheLayout::contiguous, CacheLayout::paged, CacheLayout::ring})
    for (const CacheFormat format : {CacheFormat::f32, CacheFormat::int8}) {
      Refusing cache = filled(layout, format);
      cache.expect("sequence is 2; 0 to 1 is expected", [](KvCache& c) { c.release(2); });
      cache.cache().release(1);
      cache.expect(sentence, [](KvCache& c) { c.release(1); });
      cache.expect(sentence, [](KvCache& c) { c.clear(1); });
      cache.expect(sentence, [](KvCache& c) { (void)c.fork(1); });
      cache.expect(sentence, [](KvCache& c) { c.evict(1, {}); });
      cache.expect(sentence, [](KvCache& c) { c.append(keys_of(2, 1), values_of(2, 1)); });
      cache.expect(sentence, [&](KvCache& c) { c.append(keys_of(1, 1), values_of(1, 1), offsets, one); });
      cache.expect(sentence, [](KvCache& c) { c.add_received(Tensor({2, 4, 5})); });
      cache.expect(sentence, [&](KvCache& c) { (void)heed::attention(query, c); });
      cache.expect(sentence, [&](KvCache& c) { (void)heed::attention(query, c, {}, {.sequences = both}); });
      EXPECT_EQ(cache.cache().length(1), 0);
      EXPECT_EQ(cache.cache().keys(1).shape(), (Dims{2, 0, 4}));
      EXPECT_EQ(cache.cache().fork(0), 1);
      EXPECT_TRUE(heed::test::same_bits(cache.cache().keys(1), cache.cache().keys(0)));
      EXPECT_EQ(message_of([&] { cache.cache().append(keys_of(2, 1), values_of(2, 1)); }), "no error");
    }
}

TEST(KvCacheErrors, ACacheOfNoSequenceSaysSo) {
  for (const CacheLayout layout : {CacheLayout::contiguous, CacheLayout::paged, CacheLayout::ring}) {
    KvCacheOptions options = options_of(layout);
    options.sequences = 0;
    Refusing cache{KvCache(options)};
    cache.expect("sequence is 0, but the cache has no sequences", [](KvCache& c) { c.clear(0); });
    cache.expect("sequence is -1, but the cache has no sequences", [](KvCache& c) { (void)c.keys(-1); });
  }
}

TEST(KvCacheErrors, PositionsToEvictAreHeldAndAscend) {
  for (const CacheFormat format : {CacheFormat::f32, CacheFormat::fp8}) {
    Refusing cache = filled(CacheLayout::paged, format);
    const auto expect = [&](const std::string& sentence, const std::vector<std::int64_t>& positions) {
      cache.expect(sentence, [&](KvCache& c) { c.evict(0, positions); });
    };
    expect("positions has 5, which sequence 0 does not hold", {1, 5});
    expect("positions has -1, which sequence 0 does not hold", {-1});
    expect("positions has 9223372036854775807, which sequence 0 does not hold", {0, kMax});
    expect("positions go from 3 to 1; ascending positions are expected", {0, 3, 1});
    expect("positions go from 2 to 2; ascending positions are expected", {2, 2});
    cache.cache().evict(0, std::vector<std::int64_t>{2});
    expect("positions has 2, which sequence 0 does not hold", {1, 2});
  }
}

TEST(KvCacheErrors, RoomToReserveCanBeHad) {
  for (const CacheLayout layout : {CacheLayout::contiguous, CacheLayout::paged, CacheLayout::ring})
    filled(layout).expect("rows is -1; 0 or more is expected", [](KvCache& c) { c.reserve(-1); });
  filled(CacheLayout::contiguous).expect("rows is 2147483648; 0 to 2147483647 is expected", [](KvCache& c) {
    c.reserve(kFar);
  });
  filled(CacheLayout::contiguous)
      .expect(
          "the cache would have 2 pages of 2 heads and 2147483647 rows; fewer than 2^31 rows of heads are "
          "expected",
          [](KvCache& c) { c.reserve(kFar - 1); });
  filled(CacheLayout::paged)
      .expect(
          "the cache would have 2305843009213693952 pages of 2 heads and 4 rows; fewer than 2^31 rows of "
          "heads are expected",
          [](KvCache& c) { c.reserve(kMax); });
  KvCacheOptions single = options_of(CacheLayout::paged);
  single.page_size = 1;
  filled(single).expect(
      "the cache would have 9223372036854775807 pages of 2 heads and 1 rows; fewer than 2^31 rows of heads "
      "are expected",
      [](KvCache& c) { c.reserve(kMax); });
  filled(CacheLayout::ring).expect("rows is 7; a ring has room for sinks + window = 6", [](KvCache& c) {
    c.reserve(7);
  });
}

TEST(KvCacheErrors, WhatRowsReceivedHasItsShape) {
  Refusing cache = filled(CacheLayout::paged);
  const Tensor right = normal_tensor({2, 4, 5}, 6, DType::f32);
  const auto expect = [&](const std::string& sentence, const TensorView& received, double decay = 1,
                          const std::vector<std::int64_t>& which = {}) {
    cache.expect(sentence, [&](KvCache& c) { c.add_received(received, decay, which); });
  };
  expect("decay is -0.5; 0 to 1 is expected", right, -0.5);
  expect("decay is 1.5; 0 to 1 is expected", right, 1.5);
  expect("decay is nan; 0 to 1 is expected", right, std::nan(""));
  expect("received has dtype i64; a floating dtype is expected", Tensor({2, 4, 5}, DType::i64));
  const auto* bytes = static_cast<const std::byte*>(right.view().data());
  expect("received is not aligned; its f32 data is expected at a multiple of 4 bytes",
         TensorView(bytes + 1, DType::f32, {2, 4, 4}));
  const std::string expected =
      "; [2, heads, 5] with a multiple of 2 heads, as a call returns it, is expected";
  expect("received has shape [4, 5]" + expected, Tensor({4, 5}));
  expect("received has shape [1, 4, 5]" + expected, Tensor({1, 4, 5}));
  expect("received has shape [2, 3, 5]" + expected, Tensor({2, 3, 5}));  // 3 is no multiple of 2 heads
  expect("received has shape [2, 0, 5]" + expected, Tensor({2, 0, 5}));
  expect("received has shape [2, 4, 4]" + expected, Tensor({2, 4, 4}));
  expect(
      "received has shape [2, 4, 5]; [1, heads, 3] with a multiple of 2 heads, as a call returns it, is "
      "expected",
      right, 1, {1});
  expect("sequence is 2; 0 to 1 is expected", right, 1, {0, 2});
  expect("sequences has 0 twice; distinct sequences are expected", right, 1, {0, 0});
}

// ---- Memory of the caller ---------------------------------------------------------------------------------

// Eight pages of 2 rows, [8, 2, Hkv, D].
struct Pool {
  Tensor key = normal_tensor({8, 2, 2, 4}, 7, DType::f32);
  Tensor value = normal_tensor({8, 2, 2, 6}, 8, DType::f32);
};

std::string message_of_table(const TensorView& table, const TensorView& lengths) {
  const Pool pool;
  return message_of([&] { (void)KvCache::over_block_table(pool.key, pool.value, table, lengths); });
}
std::string message_of_indices(const std::vector<std::int64_t>& indptr,
                               const std::vector<std::int64_t>& indices,
                               const std::vector<std::int64_t>& last) {
  const Pool pool;
  return message_of([&] {
    (void)KvCache::over_page_indices(pool.key, pool.value, integers(indptr), integers(indices),
                                     integers(last));
  });
}

TEST(KvCacheErrors, PagesOfABlockTableAreInThePool) {
  const Tensor lengths = integers({3, 4});
  EXPECT_EQ(message_of_table(integers({6, 1, 0, 7}, {2, 2}), lengths), "no error");
  EXPECT_EQ(message_of_table(integers({6, 1, 0, 8}, {2, 2}), lengths),
            "block_table has page 8 at 3; 0 to 7, a page of the pool, is expected");
  EXPECT_EQ(message_of_table(integers({6, -1, 0, 7}, {2, 2}), lengths),
            "block_table has page -1 at 1; 0 to 7, a page of the pool, is expected");
  EXPECT_EQ(message_of_table(integers({6, kMax, 0, 7}, {2, 2}), lengths),
            "block_table has page 9223372036854775807 at 1; 0 to 7, a page of the pool, is expected");
  EXPECT_EQ(message_of_table(integers({6, 9, 0, 7}, {2, 2}), integers({2, 4})),  // a spare page
            "block_table has page 9 at 1; 0 to 7, a page of the pool, is expected");
  EXPECT_EQ(message_of_table(integers({6, -1, 0, 7}, {2, 2}), integers({2, 4})), "no error");
}

TEST(KvCacheErrors, ASequenceOfABlockTableHasAPageOnceAndRowsWithinThem) {
  EXPECT_EQ(message_of_table(integers({6, 1, 5, 5}, {2, 2}), integers({3, 4})),
            "sequence 1 has page 5 twice; distinct pages are expected");
  EXPECT_EQ(message_of_table(integers({6, 1, 0, 7}, {2, 2}), integers({5, 4})),
            "sequence 0 has length 5; 0 to 4, the capacity of its pages, is expected");
  EXPECT_EQ(message_of_table(integers({6, 1, 0, 7}, {2, 2}), integers({3, -1})),
            "sequence 1 has length -1; 0 to 4, the capacity of its pages, is expected");
  EXPECT_EQ(message_of_table(integers({6, 1, 0, 7}, {2, 2}), integers({3, kMax})),
            "sequence 1 has length 9223372036854775807; 0 to 4, the capacity of its pages, is expected");
  EXPECT_EQ(message_of_table(integers({}, {2, 0}), integers({0, 1})),
            "sequence 1 has length 1; 0 to 0, the capacity of its pages, is expected");
}

TEST(KvCacheErrors, BlockTablesHaveTheirShapes) {
  const Tensor table = integers({6, 1, 0, 7}, {2, 2});
  EXPECT_EQ(message_of_table(integers({6, 1}), integers({3, 4})),
            "block_table has dtype i64 and shape [2]; i64 or i32 of two axes is expected");
  EXPECT_EQ(message_of_table(Tensor({2, 2}), integers({3, 4})),
            "block_table has dtype f32 and shape [2, 2]; i64 or i32 of two axes is expected");
  EXPECT_EQ(message_of_table(table, integers({3})),
            "lengths has shape [1]; [2] as in block_table is expected");
  EXPECT_EQ(message_of_table(table, integers({3, 4}, {2, 1})),
            "lengths has shape [2, 1]; one axis is expected");
  EXPECT_EQ(message_of_table(table, Tensor({2})), "lengths has dtype f32; i64 or i32 is expected");
  const auto* bytes = static_cast<const std::byte*>(table.view().data());
  EXPECT_EQ(message_of_table(TensorView(bytes + 4, DType::i64, {1, 2}), integers({1})),
            "block_table is not aligned; its i64 data is expected at a multiple of 8 bytes");
  const auto message_of_no_pages = [](const TensorView& pages) {
    const Tensor none({0, 2, 2, 4});
    return message_of([&] { (void)KvCache::over_block_table(none, none, pages, integers({1})); });
  };
  EXPECT_EQ(message_of_no_pages(integers({0}, {1, 1})),
            "block_table has page 0 at 0, but the pool has no pages");
  const Pool pool;
  for (const auto order : {static_cast<PageOrder>(2), static_cast<PageOrder>(255)}) {
    const std::string sentence =
        "order is " + std::to_string(static_cast<int>(order)) + "; 0 to 1 is expected";
    EXPECT_EQ(message_of([&] {
                (void)KvCache::over_block_table(pool.key, pool.value, table, integers({3, 4}), order);
              }),
              sentence);
    EXPECT_EQ(message_of([&] {
                (void)KvCache::over_page_indices(pool.key, pool.value, integers({0, 1}), integers({6}),
                                                 integers({1}), order);
              }),
              sentence);
  }
}

// Unused table entries may be -1, page 0, or arbitrary.
TEST(KvCacheErrors, PagesThatATableHasElsewhereAreNoRoom) {
  const auto over = [](Pool& pool, const std::vector<std::int64_t>& table, std::int64_t columns,
                       const std::vector<std::int64_t>& lengths) {
    const auto batch = static_cast<std::int64_t>(lengths.size());
    return KvCache::over_block_table(pool.key.mutable_view(), pool.value.mutable_view(),
                                     integers(table, {batch, columns}), integers(lengths));
  };
  const auto append_both = [](KvCache& c) { c.append(keys_of(2, 1), values_of(2, 1)); };
  for (const auto& [table, columns] : std::initializer_list<std::pair<std::vector<std::int64_t>, int>>{
           {{0, 2, 0, 1, 0, 0}, 3}, {{0, 2, -1, 1, -1, -1}, 3}, {{0, 2, 1, 1, 0, 2}, 3}}) {
    Pool pool;
    KvCache cache = over(pool, table, columns, {3, 1});
    const Tensor key = keys_of(2, 1), value = values_of(2, 1);
    EXPECT_EQ(message_of([&] { cache.append(key, value); }), "no error");
    // Each sequence has written the second row of its last page.
    for (const auto& [b, page] : {std::pair<std::int64_t, std::int64_t>{0, 2}, {1, 1}})
      for (std::int64_t h = 0; h < 2; ++h)
        for (std::int64_t c = 0; c < 4; ++c)
          EXPECT_EQ(pool.key.at<float>(page, 1, h, c), key.at<float>(b, h, 0, c));
    Refusing(std::move(cache))
        .expect("sequence 0 has room for 0 more rows, but 1 arrived; its table makes room", append_both);
  }
  // Two sequences could write to page 3, so neither may; the page belongs to none.
  Pool pool;
  KvCache both = over(pool, {0, 3, 1, 3}, 2, {2, 2});
  EXPECT_EQ(both.stats().shared_pages, 0);
  EXPECT_EQ(both.stats().free_pages, 6);
  Refusing(std::move(both))
      .expect("sequence 0 has room for 0 more rows, but 1 arrived; its table makes room", append_both);
}

TEST(KvCacheErrors, PageIndicesAreInThePoolAndOnce) {
  EXPECT_EQ(message_of_indices({0, 2, 3}, {6, 1, 0}, {1, 2}), "no error");
  EXPECT_EQ(message_of_indices({0, 2, 3}, {6, 8, 0}, {1, 2}),
            "indices has page 8 at 1; 0 to 7, a page of the pool, is expected");
  EXPECT_EQ(message_of_indices({0, 2, 3}, {6, 1, -1}, {1, 2}),
            "indices has page -1 at 2; 0 to 7, a page of the pool, is expected");
  EXPECT_EQ(message_of_indices({0, 2, 3}, {6, 6, 0}, {1, 2}),
            "sequence 0 has page 6 twice; distinct pages are expected");
  EXPECT_EQ(message_of_indices({0, 2, 3}, {6, 1, 0}, {3, 2}), "last_page_len[0] is 3; 1 to 2 is expected");
  EXPECT_EQ(message_of_indices({0, 2, 3}, {6, 1, 0}, {1, 0}), "last_page_len[1] is 0; 1 to 2 is expected");
  EXPECT_EQ(message_of_indices({0, 2, 3}, {6, 1, 0}, {1, -2}), "last_page_len[1] is -2; 1 to 2 is expected");
  EXPECT_EQ(message_of_indices({0, 2, 2}, {6, 1}, {1, 1}), "last_page_len[1] is 1; 0 to 0 is expected");
  EXPECT_EQ(message_of_indices({0, 2, 2}, {6, 1}, {1, 0}), "no error");
}

TEST(KvCacheErrors, PageIndicesHaveTheirShapes) {
  const std::string most = "; 0 to 3, the length of indices, in non-decreasing order, is expected";
  EXPECT_EQ(message_of_indices({0, 2}, {6, 1, 0}, {1, 2}),
            "indptr has shape [2]; [3], one more than last_page_len, is expected");
  EXPECT_EQ(message_of_indices({}, {}, {}),
            "indptr has shape [0]; [1], one more than last_page_len, is expected");
  EXPECT_EQ(message_of_indices({1, 2, 3}, {6, 1, 0}, {1, 2}), "indptr runs from 1 to 3" + most);
  EXPECT_EQ(message_of_indices({0, 2, 4}, {6, 1, 0}, {1, 2}), "indptr runs from 0 to 4" + most);
  EXPECT_EQ(message_of_indices({0, 3, 2}, {6, 1, 0}, {1, 2}), "indptr runs from 0 to 2" + most);
  EXPECT_EQ(message_of_indices({0, -1, 3}, {6, 1, 0}, {1, 2}), "indptr runs from 0 to 3" + most);
  const Pool pool;
  const auto message = [&](const TensorView& indptr, const TensorView& indices, const TensorView& last) {
    return message_of([&] { (void)KvCache::over_page_indices(pool.key, pool.value, indptr, indices, last); });
  };
  EXPECT_EQ(message(Tensor({2}), integers({6}), integers({1})),
            "indptr has dtype f32; i64 or i32 is expected");
  EXPECT_EQ(message(integers({0, 1}), integers({6}, {1, 1}), integers({1})),
            "indices has shape [1, 1]; one axis is expected");
  EXPECT_EQ(message(integers({0, 1}), integers({6}), Tensor({1}, DType::u8)),
            "last_page_len has dtype u8; i64 or i32 is expected");
}

std::string message_of_pools(const TensorView& key, const TensorView& value,
                             PageOrder order = PageOrder::nhd) {
  return message_of([&] {
    (void)KvCache::over_block_table(key, value, integers({0}, {1, 1}), integers({1}), order);
  });
}

TEST(KvCacheErrors, PoolsLieInPages) {
  const Pool pool;
  const TensorView key = pool.key, value = pool.value;
  EXPECT_EQ(message_of_pools(Tensor({8, 2, 2, 4}, DType::f64), value),
            "key has dtype f64; f32, f16 or bf16 is expected");
  EXPECT_EQ(message_of_pools(Tensor({8, 2, 2, 4}, DType::i32), value),
            "key has dtype i32; f32, f16 or bf16 is expected");
  EXPECT_EQ(message_of_pools(key, Tensor({8, 2, 2, 6}, DType::f16)),
            "value has dtype f16; f32 as in key is expected");
  EXPECT_EQ(message_of_pools(key.narrow(0, 0, 1).select(0, 0), value),
            "key has shape [2, 2, 4]; 4 axes are expected");
  EXPECT_EQ(message_of_pools(key, value.select(0, 0)), "value has shape [2, 2, 6]; 4 axes are expected");
  EXPECT_EQ(message_of_pools(key, value.narrow(0, 0, 7)),
            "value has shape [7, 2, 2, 6]; the pages, heads and rows of key, [8, 2, 2, 4], are expected");
  EXPECT_EQ(message_of_pools(key, value.narrow(1, 0, 1)),
            "value has shape [8, 1, 2, 6]; the pages, heads and rows of key, [8, 2, 2, 4], are expected");
  EXPECT_EQ(
      message_of_pools(Tensor({8, 2, 2, 0}), value),
      "key has shape [8, 2, 2, 0] and value [8, 2, 2, 6]; at least one head, one row and a dimension of "
      "1 are expected");
  EXPECT_EQ(message_of_pools(key.transpose(2, 3), value),
            "key has strides [16, 8, 1, 4]; stride 1 is expected for the last axis");
  const float* numbers = key.data_as<float>();
  EXPECT_EQ(message_of_pools(TensorView(numbers, {8, 2, 2, 4}, {13, 4, 4, 1}), value),
            "key has strides [13, 4, 4, 1]; a page stride of whole rows is expected");
  EXPECT_EQ(message_of_pools(TensorView(numbers + 4, {7, 2, 2, 4}, {16, 8, -4, 1}), value.narrow(0, 0, 7)),
            "key has strides [16, 8, -4, 1]; strides of 0 or more are expected");
  EXPECT_EQ(message_of_pools(TensorView(numbers, {8, 2, 2, 4}, {-16, 8, 4, 1}), value),
            "key has strides [-16, 8, 4, 1]; strides of 0 or more are expected");
  EXPECT_EQ(message_of_pools(TensorView(numbers, {8, 2, 2, 4}, {16, 0, 4, 1}), value),
            "key has strides [16, 0, 4, 1]; a page stride of whole rows is expected");
  EXPECT_EQ(
      message_of_pools(TensorView(numbers, {8, 2, 2, 4}, {8, 8, 4, 1}), value),
      "key has shape [8, 2, 2, 4] and strides [8, 8, 4, 1], so pages overlap; separate pages are expected");
  EXPECT_EQ(
      message_of_pools(TensorView(numbers, {8, 2, 2, 4}, {0, 8, 4, 1}), value),
      "key has shape [8, 2, 2, 4] and strides [0, 8, 4, 1], so pages overlap; separate pages are expected");
  EXPECT_EQ(message_of_pools(TensorView(numbers, {4, 2, 2, 4}, {32, 8, 4, 1}), value.narrow(0, 0, 4)),
            "value has pages 2 rows apart; 4 as in key are expected");
  const auto* bytes = static_cast<const std::byte*>(key.data());
  EXPECT_EQ(message_of_pools(TensorView(bytes + 2, DType::f32, {7, 2, 2, 4}), value),
            "key is not aligned; its f32 data is expected at a multiple of 4 bytes");
  EXPECT_EQ(message_of_pools(TensorView(numbers, {kFar, 1, 1, 1}, {1, 1, 1, 1}),
                             TensorView(numbers, {kFar, 1, 1, 1}, {1, 1, 1, 1})),
            "key has shape [2147483648, 1, 1, 1] and strides [1, 1, 1, 1]; fewer than 2^31 rows of heads are "
            "expected");
}

TEST(KvCacheErrors, MemoryToWriteToIsOfEachRowAlone) {
  Pool pool;
  float* numbers = pool.key.values<float>().data();
  const MutableTensorView shared(numbers, DType::f32, {4, 2, 2, 4}, {16, 8, 0, 1});  // heads share rows
  EXPECT_EQ(message_of([&] {
              (void)KvCache::over_block_table(shared, pool.value.mutable_view().narrow(0, 0, 4),
                                              integers({0}, {1, 1}), integers({1}));
            }),
            "key has shape [4, 2, 2, 4] and strides [16, 8, 0, 1], so it may overlap itself; separate memory "
            "for each element is expected");
  EXPECT_EQ(message_of([&] {
              (void)KvCache::over_block_table(TensorView(shared), pool.value.view().narrow(0, 0, 4),
                                              integers({0}, {1, 1}), integers({1}));
            }),
            "no error");
}

TEST(KvCacheErrors, TensorsHaveALengthEach) {
  const Tensor key = keys_of(2, 5), value = values_of(2, 5);
  const auto message = [&](const TensorView& lengths) {
    return message_of([&] { (void)KvCache::over(key, value, lengths); });
  };
  EXPECT_EQ(message(integers({5, 0})), "no error");
  EXPECT_EQ(message(integers({5})), "lengths has shape [1]; [2], one per sequence of key, is expected");
  EXPECT_EQ(message(integers({5, 6})),
            "sequence 1 has length 6; 0 to 5, the capacity of its pages, is expected");
  EXPECT_EQ(message(integers({-1, 5})),
            "sequence 0 has length -1; 0 to 5, the capacity of its pages, is expected");
  EXPECT_EQ(message(Tensor({2})), "lengths has dtype f32; i64 or i32 is expected");
}

// Also requires that no byte of the caller's pool was written.
void expect_pool_refuses(Pool& pool, KvCache cache, const std::string& sentence,
                         const std::function<void(KvCache&)>& operation) {
  const Tensor key = Tensor::copy_of(pool.key), value = Tensor::copy_of(pool.value);
  Refusing(std::move(cache)).expect(sentence, operation);
  EXPECT_TRUE(heed::test::same_bits(pool.key, key) && heed::test::same_bits(pool.value, value));
}

TEST(KvCacheErrors, APageIsWrittenToByOneSequence) {
  Pool pool;
  const auto over = [&](const TensorView& table, const TensorView& lengths) {
    return KvCache::over_block_table(pool.key.mutable_view(), pool.value.mutable_view(), table, lengths);
  };
  const auto append_both = [](KvCache& c) { c.append(keys_of(2, 1), values_of(2, 1)); };
  // Both sequences read page 1, and would write their next row to it.
  expect_pool_refuses(
      pool, over(integers({6, 1, 0, 1}, {2, 2}), integers({3, 3})),
      "page 1 is shared, but sequence 0 would write to it; an unshared page is expected in its table",
      append_both);
  // One sequence has rows in page 1, so the other cannot use it.
  expect_pool_refuses(pool, over(integers({6, 1, 0, 1}, {2, 2}), integers({4, 2})),
                      "sequence 0 has room for 0 more rows, but 1 arrived; its table makes room",
                      append_both);
  expect_pool_refuses(pool, over(integers({0, 1, 6, 1}, {2, 2}), integers({2, 4})),
                      "sequence 0 has room for 0 more rows, but 1 arrived; its table makes room",
                      append_both);
  // A fork shares its pages too.
  KvCache forked = over(integers({6, 1, 0, 7}, {2, 2}), integers({3, 1}));
  (void)forked.fork(0);
  expect_pool_refuses(
      pool, std::move(forked),
      "page 1 is shared, but sequence 2 would write to it; an unshared page is expected in its table",
      [](KvCache& c) {
        const std::int64_t which[] = {2};
        c.append(keys_of(1, 1), values_of(1, 1), integers({0, 1}), which);
      });
}

TEST(KvCacheErrors, MemoryOfTheCallerHasItsLimits) {
  Pool pool;
  const Tensor table = integers({6, 1, 0, 7}, {2, 2}), lengths = integers({3, 1});
  const auto over = [&] {
    return KvCache::over_block_table(pool.key.mutable_view(), pool.value.mutable_view(), table, lengths);
  };
  expect_pool_refuses(pool, over(),
                      "sequence 0 has room for 1 more rows, but 2 arrived; its table makes room",
                      [](KvCache& c) { c.append(keys_of(2, 2), values_of(2, 2)); });
  expect_pool_refuses(pool, over(), "the memory of this cache is the caller's and cannot grow",
                      [](KvCache& c) { c.reserve(1); });
  const auto read_only = [&] {
    return KvCache::over_block_table(pool.key.view(), pool.value.view(), table, lengths);
  };
  const std::string sentence =
      "the memory of this cache is read-only; mutable views are expected for append()";
  expect_pool_refuses(pool, read_only(), sentence,
                      [](KvCache& c) { c.append(keys_of(2, 1), values_of(2, 1)); });
  expect_pool_refuses(pool, read_only(), sentence, [](KvCache& c) {
    c.append(keys_of(1, 1), values_of(1, 1), integers({0, 0, 1}));
  });
  Tensor key = keys_of(2, 5), value = values_of(2, 5);
  Refusing(KvCache::over(key.mutable_view(), value.mutable_view(), integers({2, 5})))
      .expect(
          "the memory of this cache is the caller's and has no room for another sequence; a paged cache is "
          "expected for fork()",
          [](KvCache& c) { (void)c.fork(0); });
}

// ---- Attention --------------------------------------------------------------------------------------------

class KvCacheCallErrors : public testing::Test {
 protected:
  void expect(const std::string& sentence, const TensorView& query, const AttentionOptions& options = {},
              const CacheQuery& which = {}) {
    cache_.expect(sentence, [&](KvCache& c) { (void)heed::attention(query, c, options, which); });
    Tensor output({2, 4, 3, 6});
    for (float& x : output.values<float>()) x = 7;
    const Tensor before = Tensor::copy_of(output);
    heed::AttentionOutputs outputs;
    outputs.output = output.mutable_view();
    cache_.expect(sentence,
                  [&](KvCache& c) { (void)heed::attention_into(query, c, options, outputs, which); });
    EXPECT_TRUE(heed::test::same_bits(output, before));
  }
  static Tensor queries(const Dims& shape, DType dtype = DType::f32) {
    return normal_tensor(shape, 9, dtype);
  }

  Refusing cache_ = filled(CacheLayout::paged);  // sequences of 5 and 3 rows
  Tensor query_ = queries({2, 4, 3, 4});
};

TEST_F(KvCacheCallErrors, QueriesFitTheCache) {
  expect("query has dtype f64; f32, f16 or bf16 is expected over a cache", queries({2, 4, 3, 4}, DType::f64));
  expect("query has dtype i64; f32, f16 or bf16 is expected over a cache", Tensor({2, 4, 3, 4}, DType::i64));
  expect("query has shape [4, 3, 4]; [B, H, Lq, D] is expected over a cache", queries({4, 3, 4}));
  expect("query has head dimension 5 (shape [2, 4, 3, 5]); 4 as in the cache is expected",
         queries({2, 4, 3, 5}));
  expect("query has head count 3 (shape [2, 3, 3, 4]); a multiple of the cache's 2 is expected",
         queries({2, 3, 3, 4}));
  expect("query has 1 sequence; 2 as in the cache are expected", queries({1, 4, 3, 4}));
  const auto* bytes = static_cast<const std::byte*>(query_.view().data());
  expect("query is not aligned; its f32 data is expected at a multiple of 4 bytes",
         TensorView(bytes + 2, DType::f32, {2, 4, 2, 4}));
  // The rows have another dtype, so the query must be converted first.
  expect("query is not aligned; its bf16 data is expected at a multiple of 2 bytes",
         TensorView(bytes + 1, DType::bf16, {2, 4, 3, 4}));
}

TEST_F(KvCacheCallErrors, SequencesExist) {
  const std::vector<std::int64_t> one{1}, wrong{0, 2}, negative{-1, 0};
  expect("sequences has 1 number; 2, one per batch entry, is expected", query_, {}, {.sequences = one});
  expect("sequence is 2; 0 to 1 is expected", query_, {}, {.sequences = wrong});
  expect("sequence is -1; 0 to 1 is expected", query_, {}, {.sequences = negative});
}

TEST_F(KvCacheCallErrors, OptionsAreThoseOfACache) {
  const Tensor lengths = integers({1, 2}), segments = integers({0, 3}), mask({3, 4}, DType::boolean);
  AttentionOptions options;
  options.kv_lengths = lengths.view();
  expect("kv_lengths is given; a cache knows its own lengths", query_, options);
  options.kv_lengths.reset();
  options.key_segments = segments.view();
  expect("key_segments is given; a cache knows its own lengths", query_, options);
  options.key_segments.reset();
  options.output_dtype = DType::f16;
  expect("output_dtype is f16; f32 as in query or f32 is expected", query_, options);
  options.output_dtype.reset();
  options.mask = mask.view();  // for 4 keys, but the longest sequence has 5
  expect("mask has shape [3, 4]; a shape that broadcasts to [2, 4, 3, 5] is expected", query_, options);
  options.mask.reset();
  options.softcap = -1;
  expect("softcap is -1; a finite number of 0 (off) or more is expected", query_, options);
}

TEST_F(KvCacheCallErrors, SegmentsAreOfTheQueries) {
  const Tensor packed = queries({1, 4, 6, 4}), three = integers({0, 2, 4, 6}), far = integers({0, 3, 7});
  AttentionOptions options;
  options.query_segments = three.view();
  expect("query has 3 sequences; 2 as in the cache are expected", packed, options);
  options.query_segments = far.view();
  expect("query_segments runs from 0 to 7; 0 to 6, the length of query, is expected", packed, options);
  const Tensor none({0}, DType::i64), real({3}), grid = integers({0, 2, 6}, {1, 3});
  options.query_segments = none.view();
  expect("query_segments is empty; offsets from 0 to 6 are expected", packed, options);
  options.query_segments = real.view();
  expect("query_segments has dtype f32; i64 or i32 is expected", packed, options);
  options.query_segments = grid.view();
  expect("query_segments has shape [1, 3]; one axis is expected", packed, options);
}

TEST_F(KvCacheCallErrors, TreesAreTrees) {
  const Tensor parents = integers({-1, 0, 0}), mask({3, 3}, DType::boolean);
  expect("tree_mask is given together with tree_parents; one is expected", query_, {},
         {.tree_parents = parents.view(), .tree_mask = mask.view()});
  const Tensor two = integers({-1, 0}), real({3}), three_two = integers({-1, 0, 0, -1, 0, 0}, {3, 2});
  const std::string of_parents = "; i64 or i32 [3] or [2, 3] is expected";
  expect("tree_parents has dtype i64 and shape [2]" + of_parents, query_, {}, {.tree_parents = two.view()});
  expect("tree_parents has dtype f32 and shape [3]" + of_parents, query_, {}, {.tree_parents = real.view()});
  expect("tree_parents has dtype i64 and shape [3, 2]" + of_parents, query_, {},
         {.tree_parents = three_two.view()});
  // A parent comes before its child, so cycles are impossible.
  const Tensor itself = integers({-1, 1, 0}), later = integers({-1, 2, 0}), low = integers({-2, 0, 0});
  const Tensor second = integers({-1, 0, 0, -1, 0, 3}, {2, 3});
  expect("tree_parents[1] is 1; -1 or a node before it is expected", query_, {},
         {.tree_parents = itself.view()});
  expect("tree_parents[1] is 2; -1 or a node before it is expected", query_, {},
         {.tree_parents = later.view()});
  expect("tree_parents[0] is -2; -1 or a node before it is expected", query_, {},
         {.tree_parents = low.view()});
  expect("tree_parents[2] is 3; -1 or a node before it is expected", query_, {},
         {.tree_parents = second.view()});
  const Tensor small({2, 2}, DType::boolean), numbers({3, 3}, DType::u8);
  const std::string of_mask = "; bool [3, 3] or [2, 3, 3] is expected";
  expect("tree_mask has dtype bool and shape [2, 2]" + of_mask, query_, {}, {.tree_mask = small.view()});
  expect("tree_mask has dtype u8 and shape [3, 3]" + of_mask, query_, {}, {.tree_mask = numbers.view()});
  // The drafts are the last rows, so there must be as many.
  const Tensor four = integers({-1, 0, 1, 2});
  expect("sequence 1 holds 3 rows; at least the 4 rows of the tree are expected", queries({2, 4, 4, 4}), {},
         {.tree_parents = four.view()});
  const Tensor one = integers({-1});
  KvCache empty({.kv_heads = 2, .head_dim = 4, .capacity = 1});
  EXPECT_EQ(message_of([&] {
              (void)heed::attention(queries({1, 4, 1, 4}), empty, {}, {.tree_parents = one.view()});
            }),
            "sequence 0 holds 0 rows; at least the 1 row of the tree is expected");
  EXPECT_EQ(message_of([&] {
              (void)heed::attention(queries({2, 4, 1, 4}), empty);
            }),
            "query has 2 sequences; 1 as in the cache is expected");
  const Tensor ragged = integers({0, 2, 5});
  AttentionOptions options;
  options.query_segments = ragged.view();
  expect("sequence 1 has 3 queries; 2, as in the first sequence, are expected with a tree",
         queries({1, 4, 5, 4}), options, {.tree_parents = two.view()});
}

TEST_F(KvCacheCallErrors, OutputsHaveTheirShapesAndAPlaceOfTheirOwn) {
  const auto expect_outputs = [&](const std::string& sentence, const heed::AttentionOutputs& outputs) {
    cache_.expect(sentence, [&](KvCache& c) { (void)heed::attention_into(query_, c, {}, outputs); });
  };
  Tensor output({2, 4, 3, 6}), wrong({2, 4, 3, 4}), weights({2, 4, 3, 4});
  heed::AttentionOutputs outputs;
  outputs.output = wrong.mutable_view();
  expect_outputs("outputs.output has shape [2, 4, 3, 4]; [2, 4, 3, 6] is expected", outputs);
  outputs.output = output.mutable_view();
  outputs.weights = weights.mutable_view();
  expect_outputs("outputs.weights has shape [2, 4, 3, 4]; [2, 4, 3, 5] is expected", outputs);
  outputs.weights = {};
  Tensor f16({2, 4, 3, 6}, DType::f16);
  outputs.output = f16.mutable_view();
  expect_outputs("outputs.output has dtype f16; f32 is expected", outputs);
}

// Outputs must not overlap any page of the pool, even one that the call does not read.
TEST(KvCacheErrors, OutputsOverlapNoPageOfAPool) {
  Pool pool;
  const Tensor query = normal_tensor({1, 2, 2, 4}, 9, DType::f32);
  const auto message = [&](const KvCache& cache, float* output) {
    heed::AttentionOutputs outputs;
    outputs.output = MutableTensorView(output, DType::f32, {1, 2, 2, 6});
    return message_of([&] { (void)heed::attention_into(query, cache, {}, outputs); });
  };
  for (std::int64_t page = 0; page < 8; ++page)
    for (std::int64_t read = 0; read < 8; ++read) {
      const KvCache cache = KvCache::over_block_table(pool.key.view(), pool.value.view(),
                                                      integers({read}, {1, 1}), integers({2}));
      EXPECT_EQ(message(cache, &pool.value.at<float>(page, 0, 0, 0)),
                "outputs.output overlaps value in memory; separate memory is expected");
      if (page == 7) continue;  // the output has 24 floats, more than the 16 of a page of keys
      EXPECT_EQ(message(cache, &pool.key.at<float>(page, 0, 0, 0)),
                "outputs.output overlaps key in memory; separate memory is expected");
    }
  // A cache over part of a pool leaves the other pages free.
  const KvCache half =
      KvCache::over_block_table(pool.key.view().narrow(0, 0, 4), pool.value.view().narrow(0, 0, 4),
                                integers({1}, {1, 1}), integers({2}));
  EXPECT_EQ(message(half, &pool.value.at<float>(4, 0, 0, 0)), "no error");
}

TEST(KvCacheErrors, WhatIsRotatedIsAligned) {
  const Tensor x({2, 8});
  EXPECT_EQ(message_of([&] {
              const auto* bytes = static_cast<const std::byte*>(x.view().data());
              (void)heed::hadamard(TensorView(bytes + 2, DType::f32, {1, 8}));
            }),
            "x is not aligned; its f32 data is expected at a multiple of 4 bytes");
}

// Rows of the cache's own memory are appended as they were before the call.
TEST(KvCacheErrors, RowsOfItsOwnMemoryAreAppendedAsTheyWere) {
  Tensor keys = keys_of(1, 6), values = values_of(1, 6);
  const Tensor key = Tensor::copy_of(keys.view().narrow(2, 2, 3)),
               value = Tensor::copy_of(values.view().narrow(2, 2, 3));
  KvCache cache = KvCache::over(keys, values, integers({3}));
  cache.append(keys.view().narrow(2, 2, 3), values.view().narrow(2, 2, 3));
  EXPECT_TRUE(heed::test::same_bits(Tensor::copy_of(keys.view().narrow(2, 3, 3)), key));
  EXPECT_TRUE(heed::test::same_bits(Tensor::copy_of(values.view().narrow(2, 3, 3)), value));
}

// A cache over mutable views can be appended to.
TEST(KvCacheErrors, TensorsThatMayBeWrittenAreWritten) {
  Pool pool;
  const Tensor table = integers({6, 1, 0, 7}, {2, 2}), key = keys_of(2, 1), value = values_of(2, 1);
  const auto expect_appends = [&](const std::string& sentence, KvCache cache) {
    EXPECT_EQ(message_of([&] { cache.append(key, value); }), sentence);
  };
  expect_appends("no error", KvCache::over_block_table(pool.key, pool.value, table, integers({3, 1})));
  expect_appends("no error", KvCache::over_page_indices(pool.key, pool.value, integers({0, 1, 2}),
                                                        integers({6, 1}), integers({1, 1})));
  Tensor keys = keys_of(2, 5), values = values_of(2, 5);
  expect_appends("no error", KvCache::over(keys, values, integers({2, 4})));
  const std::string read_only =
      "the memory of this cache is read-only; mutable views are expected for append()";
  expect_appends(read_only, KvCache::over(std::as_const(keys), std::as_const(values), integers({2, 4})));
  expect_appends(read_only, KvCache::over(keys.view(), values.view(), integers({2, 4})));
}

}  // namespace
