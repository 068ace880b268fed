// Random operations on caches of floats, compared with plain vectors of rows. Forks share pages, so a page
// that is not copied before an append shows here. Quantised rows are compared
// with the formulas of docs/kv_cache.md.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "attention_support.hpp"
#include "compare_results.hpp"
#include "heed/attention/kv_cache.hpp"
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

constexpr std::uint64_t kSeed = 20261125;

struct PlainRow {
  std::int64_t position = 0;
  std::vector<float> key, value, received;  // [Hkv * D], [Hkv * Dv], [Hkv]
};

struct PlainSequence {
  std::int64_t length = 0;
  std::vector<PlainRow> rows;
  bool released = false;
};

// A cache and the vectors that it must equal.
class Machine {
 public:
  Machine(const KvCacheOptions& options, Draw& draw)
      : options_(options),
        draw_(draw),
        cache_(options),
        plain_(static_cast<std::size_t>(options.sequences)) {}

  void step() {
    switch (draw_.between(0, 9)) {
      case 0:
        return truncate();
      case 1:
        return fork();
      case 2:
      case 3:
        return evict();
      case 4:
        return receive();
      case 5:
        return clear_or_reserve();
      case 6:
        return attend();
      case 7:
        cache_ = draw_.chance(0.5) ? cache_.copy() : heed::test::restored(cache_);
        return;
      default:
        return append();
    }
  }

  void check() const {
    ASSERT_EQ(cache_.sequences(), static_cast<std::int64_t>(plain_.size()));
    std::int64_t rows = 0;
    for (std::int64_t s = 0; s < cache_.sequences(); ++s) {
      check_sequence(s);
      rows += cache_.rows(s);
    }
    const heed::KvCacheStats stats = cache_.stats();
    ASSERT_EQ(stats.rows, rows);
    if (options_.layout == CacheLayout::paged) {
      std::int64_t held = 0;  // a page is held while it holds a row, or has space for the next one
      for (const PlainSequence& s : plain_) held += static_cast<std::int64_t>(s.rows.size());
      ASSERT_LE(stats.pages - stats.free_pages, held);
    }
  }

  std::int64_t refused = 0, attended = 0;

 private:
  const PlainSequence& plain(std::int64_t s) const { return plain_[static_cast<std::size_t>(s)]; }
  std::vector<std::int64_t> in_use() const {
    std::vector<std::int64_t> numbers;
    for (std::int64_t s = 0; s < cache_.sequences(); ++s)
      if (!plain(s).released) numbers.push_back(s);
    return numbers;
  }
  std::int64_t any_sequence() { return draw_.pick(in_use()); }

  Tensor rows_of(const PlainSequence& s, bool keys) const {
    const std::int64_t width = keys ? options_.head_dim : options_.value_dim;
    Tensor rows({options_.kv_heads, static_cast<std::int64_t>(s.rows.size()), width});
    float* to = rows.values<float>().data();
    for (std::int64_t h = 0; h < options_.kv_heads; ++h)
      for (const PlainRow& row : s.rows)
        for (std::int64_t c = 0; c < width; ++c)
          *to++ = (keys ? row.key : row.value)[static_cast<std::size_t>(h * width + c)];
    return rows;
  }

  void check_sequence(std::int64_t number) const {
    const PlainSequence& s = plain(number);
    ASSERT_EQ(cache_.length(number), s.length);
    std::vector<std::int64_t> positions;
    for (const PlainRow& row : s.rows) positions.push_back(row.position);
    ASSERT_EQ(cache_.positions(number), positions);
    ASSERT_TRUE(heed::test::same_bits(cache_.keys(number), rows_of(s, true)));
    ASSERT_TRUE(heed::test::same_bits(cache_.values(number), rows_of(s, false)));
    const Tensor received = cache_.received(number);
    for (std::int64_t h = 0; h < options_.kv_heads; ++h)
      for (std::size_t r = 0; r < s.rows.size(); ++r)
        ASSERT_EQ(received.at<float>(h, static_cast<std::int64_t>(r)),
                  s.rows[r].received[static_cast<std::size_t>(h)]);
  }

  // Numbers that every format holds exactly.
  Tensor random_rows(std::int64_t batch, std::int64_t rows, std::int64_t width) {
    Tensor tensor({batch, options_.kv_heads, rows, width});
    for (float& x : tensor.values<float>()) x = static_cast<float>(draw_.between(-100, 100)) / 8;
    return tensor;
  }

  void append() {
    std::vector<std::int64_t> offsets{0}, which;
    for (const std::int64_t s : in_use())
      if (draw_.chance(0.7)) which.push_back(s);
    if (which.empty()) return;
    for (std::size_t s = 0; s < which.size(); ++s) offsets.push_back(offsets.back() + draw_.between(0, 9));
    const Tensor key = random_rows(1, offsets.back(), options_.head_dim);
    const Tensor value = random_rows(1, offsets.back(), options_.value_dim);
    try {
      cache_.append(key, value, TensorView(offsets.data(), {static_cast<std::int64_t>(offsets.size())}),
                    which);
    } catch (const heed::Error&) {  // the cache was full, and nothing has changed
      ++refused;
      return;
    }
    for (std::size_t s = 0; s < which.size(); ++s)
      for (std::int64_t row = offsets[s]; row < offsets[s + 1]; ++row)
        add(plain_[static_cast<std::size_t>(which[s])], key, value, row);
  }

  void add(PlainSequence& s, const Tensor& key, const Tensor& value, std::int64_t row) const {
    PlainRow plain{s.length++, {}, {}, std::vector<float>(static_cast<std::size_t>(options_.kv_heads), 0.0f)};
    for (std::int64_t h = 0; h < options_.kv_heads; ++h) {
      for (std::int64_t c = 0; c < options_.head_dim; ++c) plain.key.push_back(key.at<float>(0, h, row, c));
      for (std::int64_t c = 0; c < options_.value_dim; ++c)
        plain.value.push_back(value.at<float>(0, h, row, c));
    }
    s.rows.push_back(std::move(plain));
    if (options_.layout != CacheLayout::ring) return;
    // The oldest row that is not a sink is evicted.
    if (static_cast<std::int64_t>(s.rows.size()) > options_.sinks + options_.window) {
      std::size_t oldest = 0;
      while (s.rows[oldest].position < options_.sinks) ++oldest;
      s.rows.erase(s.rows.begin() + static_cast<std::ptrdiff_t>(oldest));
    }
  }

  void truncate() {
    const std::int64_t number = any_sequence();
    PlainSequence& s = plain_[static_cast<std::size_t>(number)];
    const std::int64_t length = draw_.between(std::max<std::int64_t>(0, s.length - 20), s.length);
    cache_.truncate(number, length);
    std::erase_if(s.rows, [&](const PlainRow& row) { return row.position >= length; });
    s.length = length;
  }

  void fork() {
    if (draw_.chance(0.4)) return release();
    if (in_use().size() >= 6) return;
    const std::int64_t number = any_sequence(), made = cache_.fork(number);
    if (released_.empty()) {
      ASSERT_EQ(made, static_cast<std::int64_t>(plain_.size()));
      plain_.emplace_back();
    } else {
      ASSERT_EQ(made, released_.back());
      released_.pop_back();
    }
    plain_[static_cast<std::size_t>(made)] = PlainSequence(plain(number));
  }

  void release() {
    if (in_use().size() < 2) return;
    released_.push_back(any_sequence());
    cache_.release(released_.back());
    plain_[static_cast<std::size_t>(released_.back())] = {};
    plain_[static_cast<std::size_t>(released_.back())].released = true;
  }

  void evict() {
    const std::int64_t number = any_sequence();
    PlainSequence& s = plain_[static_cast<std::size_t>(number)];
    std::vector<std::int64_t> gone;
    for (const PlainRow& row : s.rows)
      if (draw_.chance(0.2)) gone.push_back(row.position);
    cache_.evict(number, gone);
    std::erase_if(s.rows, [&](const PlainRow& row) {
      return std::binary_search(gone.begin(), gone.end(), row.position);
    });
  }

  void receive() {
    const std::vector<std::int64_t> which = in_use();
    const auto count = static_cast<std::int64_t>(which.size());
    std::int64_t most = 0;
    for (const std::int64_t s : which) most = std::max(most, cache_.rows(s));
    const std::int64_t heads = 2 * options_.kv_heads;
    Tensor received({count, heads, most});
    for (float& x : received.values<float>()) x = static_cast<float>(draw_.between(0, 64)) / 64;
    cache_.add_received(received, 0.5, which);
    for (std::int64_t b = 0; b < count; ++b) {
      PlainSequence& s = plain_[static_cast<std::size_t>(which[static_cast<std::size_t>(b)])];
      for (std::size_t r = 0; r < s.rows.size(); ++r)
        for (std::int64_t h = 0; h < options_.kv_heads; ++h) {
          float& sum = s.rows[r].received[static_cast<std::size_t>(h)];
          const auto row = static_cast<std::int64_t>(r);
          sum = 0.5f * sum + received.at<float>(b, 2 * h, row) + received.at<float>(b, 2 * h + 1, row);
        }
    }
  }

  void clear_or_reserve() {
    if (draw_.chance(0.3)) {
      const std::int64_t number = any_sequence();
      cache_.clear(number);
      plain_[static_cast<std::size_t>(number)] = {};
    } else if (options_.layout != CacheLayout::ring) {
      cache_.reserve(draw_.between(0, 300));
    }
  }

  void attend() {
    const std::vector<std::int64_t> which = in_use();
    const auto count = static_cast<std::int64_t>(which.size());
    const Tensor query = random_queries(count);
    heed::AttentionOptions options{.causal = true, .need = heed::Need::lse | heed::Need::distance};
    const heed::AttentionResult all = heed::attention(query, cache_, options, {.sequences = which});
    heed::test::RowTally tally;
    for (std::int64_t b = 0; b < count; ++b) {
      const std::int64_t s = which[static_cast<std::size_t>(b)];
      std::vector<std::int64_t> positions = cache_.positions(s);
      options.query_offset = plain(s).length - 2;
      const auto batched = [&](Tensor rows) {
        const heed::Dims shape = rows.shape();
        return std::move(rows).reshaped({1, shape[0], shape[1], shape[2]});
      };
      const heed::test::Naive naive =
          heed::test::naive_attention(query.view().narrow(0, b, 1), batched(rows_of(plain(s), true)),
                                      batched(rows_of(plain(s), false)), options, positions);
      heed::AttentionResult one;
      for (const auto member :
           {&heed::AttentionResult::output, &heed::AttentionResult::lse, &heed::AttentionResult::distance})
        one.*member = Tensor::copy_of((all.*member).view().narrow(0, b, 1));
      // The rounding of the fused kernels in f32 (fused_rounding.hpp); the reference computes in f64.
      ASSERT_EQ(heed::test::compare_results(one, options, naive,
                                            {.unit = 0x1p-24, .slack = 3, .floor = 0x1p-110}, tally),
                "");
    }
    ++attended;
  }

  Tensor random_queries(std::int64_t count) {
    Tensor query({count, 2 * options_.kv_heads, 2, options_.head_dim});
    for (float& x : query.values<float>()) x = static_cast<float>(draw_.normal()) / 8;
    return query;
  }

  KvCacheOptions options_;
  Draw& draw_;
  KvCache cache_;
  std::vector<PlainSequence> plain_;
  std::vector<std::int64_t> released_;  // in order of release
};

KvCacheOptions random_options(Draw& draw) {
  KvCacheOptions options;
  options.sequences = draw.between(1, 3);
  options.kv_heads = draw.between(1, 3);
  options.head_dim = draw.between(1, 9);
  options.value_dim = draw.between(1, 9);
  options.format = draw.pick<CacheFormat>({CacheFormat::f32, CacheFormat::bf16, CacheFormat::f16});
  options.layout = draw.pick<CacheLayout>(
      {CacheLayout::contiguous, CacheLayout::paged, CacheLayout::paged, CacheLayout::ring});
  options.order = draw.chance(0.5) ? heed::PageOrder::hnd : heed::PageOrder::nhd;
  options.page_size = draw.between(1, 9);
  if (options.layout == CacheLayout::ring) {
    options.sinks = draw.between(0, 3);
    options.window = draw.between(1, 20);
  } else {
    options.capacity = draw.between(1, 100);
  }
  return options;
}

TEST(KvCacheState, EqualsPlainVectorsOfRowsAfterEveryOperation) {
  std::int64_t refused = 0, attended = 0;
  for (std::uint64_t index = 0; index < heed::test::share_of(400); ++index) {
    Draw draw(kSeed, index);
    const KvCacheOptions options = random_options(draw);
    Machine machine(options, draw);
    SCOPED_TRACE("life " + std::to_string(index) + ", " + std::string(heed::name_of(options.layout)));
    for (int step = 0; step < 60; ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      machine.step();
      if (!HasFatalFailure()) machine.check();
      if (HasFatalFailure()) return;
    }
    refused += machine.refused;
    attended += machine.attended;
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(attended, 0);
}

// Capacity is a number of whole pages that hold the rows, and never shrinks.
TEST(KvCacheState, RoomIsReservedInWholePages) {
  for (const auto& [rows, capacity] :
       {std::pair<std::int64_t, std::int64_t>{0, 8}, {8, 8}, {9, 12}, {12, 12}, {13, 16}}) {
    KvCache cache({.sequences = 2,
                   .kv_heads = 3,
                   .head_dim = 2,
                   .value_dim = 5,
                   .layout = CacheLayout::paged,
                   .capacity = 7,
                   .page_size = 4});
    EXPECT_EQ(cache.stats().capacity, 8);
    cache.reserve(rows);
    EXPECT_EQ(cache.stats().capacity, capacity) << rows;
    EXPECT_EQ(cache.stats().free_pages, capacity / 4) << rows;
    EXPECT_EQ(cache.stats().bytes, capacity * 3 * (2 + 5) * 4) << rows;
    const Tensor key = heed::test::normal_tensor({1, 3, 5, 2}, 1, DType::f32),
                 value = heed::test::normal_tensor({1, 3, 5, 5}, 2, DType::f32);
    const std::int64_t ends[] = {0, 4, 5}, which[] = {0, 1};
    cache.append(key, value, heed::TensorView(ends, {3}), which);
    EXPECT_EQ(cache.stats().rows, 5);
    EXPECT_EQ(cache.stats().free_pages, capacity / 4 - 2) << "four rows fill a page";
  }
}

// Float formats have no groups, so the option is ignored.
TEST(KvCacheState, GroupsAreOfCodesAlone) {
  for (const CacheLayout layout : {CacheLayout::contiguous, CacheLayout::paged, CacheLayout::ring})
    for (const std::int64_t group : {std::int64_t{0}, std::int64_t{-1}, INT64_MAX, INT64_MIN}) {
      KvCacheOptions options{.kv_heads = 1, .head_dim = 2, .layout = layout, .group = group};
      (layout == CacheLayout::ring ? options.window : options.capacity) = 16;
      KvCache cache(options);
      const Tensor rows = heed::test::normal_tensor({1, 1, 5, 2}, 1, DType::f32);
      cache.append(rows, rows);
      cache.reserve(layout == CacheLayout::ring ? 16 : 40);
      (void)cache.fork(0);
      cache.truncate(0, 3);
      EXPECT_TRUE(heed::test::same_bits(cache.keys(0), rows.view().select(0, 0).narrow(1, 0, 3)));
      EXPECT_TRUE(heed::test::same_bits(cache.values(1), rows.view().select(0, 0)));
      // A query of zeros attends to all rows alike.
      const Tensor output = heed::attention(Tensor({2, 1, 1, 2}), cache).output;
      double mean = 0;
      for (std::int64_t r = 0; r < 5; ++r) mean += static_cast<double>(rows.at<float>(0, 0, r, 1)) / 5;
      EXPECT_NEAR(output.at<float>(1, 0, 0, 1), mean, 1e-6);  // five numbers of about 1 in f32
    }
}

// Multiplies by the Hadamard matrix, from its definition: element (i, j) is (-1)^popcount(i & j).
std::vector<double> rotated(const std::vector<double>& x) {
  std::size_t n = 1;
  while (x.size() % (2 * n) == 0) n *= 2;
  std::vector<double> y(x.size(), 0.0);
  for (std::size_t i = 0; i < x.size(); ++i)
    for (std::size_t j = 0; j < n; ++j)
      y[i] +=
          (std::popcount(i % n & j) % 2 == 0 ? 1 : -1) * x[i / n * n + j] / std::sqrt(static_cast<double>(n));
  return y;
}

struct Range {
  double low = INFINITY, high = -INFINITY;
  void add(double x) {
    low = std::min(low, x);
    high = std::max(high, x);
  }
};

// The largest difference between a number and its code, by the formulas: half a step. Scale and offset are
// rounded to bf16 (1/128), and f32 rounds twice.
double largest_error(CacheFormat format, const Range& range, double x) {
  const double magnitude = std::max(std::abs(range.low), std::abs(range.high));
  const double rounding = magnitude * 0x1p-22;
  if (format == CacheFormat::int8) return magnitude / 127 * (1 + 1 / 128.0) / 2 + rounding;
  if (format == CacheFormat::int4)
    return (range.high - range.low + std::abs(range.low) / 128) / 15 * (1 + 1 / 128.0) / 2 + rounding;
  // e4m3: half of 1/8 of the leading power of two, or half of the smallest subnormal 2^-9.
  return std::abs(x) / 16 + magnitude / 448 * (1 + 1 / 128.0) * 0x1p-10 + rounding;
}

KvCacheOptions codes_options(CacheFormat format, bool rotate) {
  KvCacheOptions options;
  options.kv_heads = 2;
  options.head_dim = 24;
  options.value_dim = 20;
  options.format = format;
  options.layout = CacheLayout::paged;
  options.capacity = 400;
  options.group = 16;
  options.rotate = rotate;
  return options;
}

TEST(KvCacheCodes, AreAsNearAsTheirStepsAllow) {
  for (const CacheFormat format : {CacheFormat::int8, CacheFormat::int4, CacheFormat::fp8})
    for (const bool rotate : {false, true}) {
      SCOPED_TRACE(std::string(heed::name_of(format)) + (rotate ? " rotated" : ""));
      KvCache cache(codes_options(format, rotate));
      // Channels of very different sizes, one of them with a large mean, and some rows of zeros.
      Tensor key = heed::test::normal_tensor({1, 2, 55, 24}, 7, DType::f32);
      Tensor value = heed::test::normal_tensor({1, 2, 55, 20}, 8, DType::f32);
      for (std::int64_t h = 0; h < 2; ++h)
        for (std::int64_t r = 0; r < 55; ++r) {
          for (std::int64_t c = 0; c < 24; ++c) {
            float& x = key.at<float>(0, h, r, c);
            x = c == 3 ? 50 + x : c == 5 ? 0 : x * std::pow(2.0f, static_cast<float>(c) - 12);
          }
          for (std::int64_t c = 0; r == 9 && c < 20; ++c) value.at<float>(0, h, r, c) = 0;
        }
      cache.append(key, value);
      const Tensor keys = cache.keys(0), values = cache.values(0);
      for (std::int64_t h = 0; h < 2; ++h) {
        std::vector<std::vector<double>> rows;
        for (std::int64_t r = 0; r < 55; ++r) {
          std::vector<double> row;
          for (std::int64_t c = 0; c < 24; ++c) row.push_back(static_cast<double>(key.at<float>(0, h, r, c)));
          rows.push_back(rotate ? rotated(row) : row);
        }
        for (std::int64_t r = 0; r < 55; ++r)
          for (std::int64_t c = 0; c < 24; ++c) {
            Range range;
            for (std::int64_t k = r / 16 * 16; k < std::min<std::int64_t>(55, r / 16 * 16 + 16); ++k)
              range.add(rows[static_cast<std::size_t>(k)][static_cast<std::size_t>(c)]);
            const double x = rows[static_cast<std::size_t>(r)][static_cast<std::size_t>(c)];
            // A rotated row is summed in f32, with three additions of numbers up to 2^13.
            const double rotation = rotate ? 0x1p13 * 3 * 0x1p-24 : 0;
            const double bound = r < 48 ? largest_error(format, range, x) + rotation : rotation;
            ASSERT_NEAR(keys.at<float>(h, r, c), x, bound) << "key " << r << " channel " << c;
          }
        for (std::int64_t r = 0; r < 55; ++r)
          for (std::int64_t c = 0; c < 20; ++c) {
            Range range;
            for (std::int64_t k = c / 16 * 16; k < std::min<std::int64_t>(20, c / 16 * 16 + 16); ++k)
              range.add(static_cast<double>(value.at<float>(0, h, r, k)));
            const double x = static_cast<double>(value.at<float>(0, h, r, c));
            ASSERT_NEAR(values.at<float>(h, r, c), x, r < 48 ? largest_error(format, range, x) : 0)
                << "value " << r << " channel " << c;
          }
      }
    }
}

// Numbers near the limits of f32, and groups of equal numbers.
TEST(KvCacheCodes, HoldNumbersOfAnySize) {
  for (const CacheFormat format : {CacheFormat::int8, CacheFormat::int4, CacheFormat::fp8})
    for (const float largest : {3e38f, 1e-30f, 1e-42f, 0.0f}) {
      SCOPED_TRACE(std::string(heed::name_of(format)) + " " + std::to_string(largest));
      KvCache cache(codes_options(format, false));
      Tensor key({1, 2, 16, 24}), value({1, 2, 16, 20});
      for (float& x : key.values<float>())
        x = (&x - key.values<float>().data()) % 2 == 0 ? largest : -largest;
      for (float& x : value.values<float>()) x = largest;
      cache.append(key, value);
      const Tensor keys = cache.keys(0), values = cache.values(0);
      for (std::int64_t i = 0; i < keys.count(); ++i) {
        const double x = static_cast<double>(key.values<float>()[static_cast<std::size_t>(i)]);
        // Scales are normal numbers; numbers below them become 0.
        ASSERT_NEAR(static_cast<double>(keys.values<float>()[static_cast<std::size_t>(i)]), x,
                    std::abs(x) / 14 + 0x1p-126);
      }
      for (const float x : values.values<float>()) ASSERT_NEAR(x, largest, largest / 14 + 0x1p-126f);
    }
}

// Drafts of up to a group leave no trace when they are rolled back, wherever groups end.
TEST(KvCacheCodes, AreAsBeforeAfterDraftsAreTakenBack) {
  for (const CacheFormat format : {CacheFormat::int8, CacheFormat::int4, CacheFormat::fp8})
    for (std::int64_t before = 0; before < 50; before += 3)
      for (std::int64_t drafts = 1; drafts <= 16; drafts += 5) {
        const Tensor key = heed::test::normal_tensor({1, 2, 100, 24}, 9, DType::f32);
        const Tensor value = heed::test::normal_tensor({1, 2, 100, 20}, 10, DType::f32);
        const auto rows = [](const Tensor& from, std::int64_t first, std::int64_t count) {
          return from.view().narrow(2, first, count);
        };
        KvCache one(codes_options(format, true)), other(codes_options(format, true));
        for (KvCache* cache : {&one, &other}) cache->append(rows(key, 0, before), rows(value, 0, before));
        one.append(rows(key, 60, drafts), rows(value, 60, drafts));
        one.truncate(0, before);
        ASSERT_TRUE(heed::test::same_bits(one.keys(0), other.keys(0))) << before << " and " << drafts;
        for (KvCache* cache : {&one, &other}) cache->append(rows(key, before, 40), rows(value, before, 40));
        ASSERT_TRUE(heed::test::same_bits(one.keys(0), other.keys(0))) << before << " and " << drafts;
        ASSERT_TRUE(heed::test::same_bits(one.values(0), other.values(0))) << before << " and " << drafts;
      }
}

// If more is rolled back, rows keep the values with which they were attended.
TEST(KvCacheCodes, KeepTheirValuesWhenMoreIsTakenBack) {
  const Tensor key = heed::test::normal_tensor({1, 2, 100, 24}, 11, DType::f32);
  const Tensor value = heed::test::normal_tensor({1, 2, 100, 20}, 12, DType::f32);
  KvCache cache(codes_options(CacheFormat::int4, false));
  cache.append(key, value);
  const Tensor keys = cache.keys(0), values = cache.values(0);
  cache.truncate(0, 37);
  EXPECT_TRUE(heed::test::same_bits(cache.keys(0), keys.view().narrow(1, 0, 37)));
  EXPECT_TRUE(heed::test::same_bits(cache.values(0), values.view().narrow(1, 0, 37)));
}

// The last two groups also keep their exact rows. A row that later rows pushed out of them is read from its
// code, wherever the sequence ends and is cut.
TEST(KvCacheCodes, KeepTheirValuesWhereverTheyAreCut) {
  const Tensor key = heed::test::normal_tensor({1, 2, 70, 24}, 13, DType::f32);
  const Tensor value = heed::test::normal_tensor({1, 2, 70, 20}, 14, DType::f32);
  for (std::int64_t rows = 31; rows < 70; ++rows)
    for (const std::int64_t length : {std::int64_t{0}, std::int64_t{1}, std::int64_t{5}, std::int64_t{16},
                                      std::int64_t{17}, rows - 33, rows - 32, rows - 31, rows - 1, rows}) {
      if (length < 0) continue;
      KvCache cache(codes_options(CacheFormat::int8, false));
      cache.append(key.view().narrow(2, 0, rows), value.view().narrow(2, 0, rows));
      cache.truncate(0, length);
      const Tensor keys = cache.keys(0), values = cache.values(0);
      ASSERT_EQ(keys.size(1), length);
      // The tolerance is below a step of 4 / 127; it covers a code's half step and the bf16 rounding of its
      // scale.
      for (std::int64_t h = 0; h < 2; ++h)
        for (std::int64_t r = 0; r < length; ++r) {
          for (std::int64_t c = 0; c < 24; ++c)
            ASSERT_NEAR(keys.at<float>(h, r, c), key.at<float>(0, h, r, c), 0.03)
                << rows << " cut at " << length;
          for (std::int64_t c = 0; c < 20; ++c)
            ASSERT_NEAR(values.at<float>(h, r, c), value.at<float>(0, h, r, c), 0.03)
                << rows << " cut at " << length;
        }
    }
}

// H H / n = 1, so scores are unchanged.
TEST(Hadamard, IsItsOwnInverseAndKeepsProducts) {
  for (const std::int64_t width : {1, 2, 3, 24, 64, 100, 128}) {
    const Tensor a = heed::test::normal_tensor({4, width}, 1, DType::f32);
    const Tensor b = heed::test::normal_tensor({4, width}, 2, DType::f32);
    const Tensor ra = heed::hadamard(a), rb = heed::hadamard(b), back = heed::hadamard(ra);
    for (std::int64_t r = 0; r < 4; ++r) {
      double before = 0, after = 0;
      std::vector<double> row;
      for (std::int64_t c = 0; c < width; ++c) {
        before += static_cast<double>(a.at<float>(r, c)) * static_cast<double>(b.at<float>(r, c));
        after += static_cast<double>(ra.at<float>(r, c)) * static_cast<double>(rb.at<float>(r, c));
        row.push_back(static_cast<double>(a.at<float>(r, c)));
        EXPECT_NEAR(back.at<float>(r, c), a.at<float>(r, c), 1e-6);  // 14 additions of numbers below 30
      }
      EXPECT_NEAR(after, before, 1e-4);  // 128 products of such numbers
      const std::vector<double> expected = rotated(row);
      for (std::int64_t c = 0; c < width; ++c)
        EXPECT_NEAR(ra.at<float>(r, c), expected[static_cast<std::size_t>(c)], 1e-6);
    }
  }
}

}  // namespace
