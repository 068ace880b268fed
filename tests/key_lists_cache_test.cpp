// Lists of keys over caches, whose keys a call gathers: the bits of tensors that hold the same rows, for any
// pages; dequantised rows within rounding; top-k by position. When calls gather, gradients included.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "attention_support.hpp"
#include "each_target.hpp"
#include "heed/attention/backward.hpp"
#include "heed/attention/kv_cache.hpp"
#include "heed/attention/part.hpp"
#include "heed/attention/plan.hpp"
#include "random_call.hpp"
#include "support.hpp"

namespace {

using heed::AttentionOptions;
using heed::CacheFormat;
using heed::DType;
using heed::KvCache;
using heed::Need;
using heed::SparseMask;
using heed::Tensor;
using heed::test::Draw;
using heed::test::normal_tensor;

constexpr std::uint64_t kSeed = 20261127;

bool has_codes(CacheFormat format) {
  return format == CacheFormat::int8 || format == CacheFormat::int4 || format == CacheFormat::fp8;
}

// A ragged cache of two sequences, filled in pieces.
KvCache filled(Draw& draw, std::uint64_t seed, heed::KvCacheOptions options,
               const std::vector<std::int64_t>& rows) {
  options.sequences = static_cast<std::int64_t>(rows.size());
  options.capacity = 2000;
  if (draw.chance(0.7)) options.layout = heed::CacheLayout::paged;
  options.page_size = draw.pick<std::int64_t>({1, 3, 16, 64});
  KvCache cache(options);
  std::vector<std::int64_t> done(rows.size(), 0);
  while (done != rows) {
    const auto s = static_cast<std::size_t>(draw.between(0, static_cast<std::int64_t>(rows.size()) - 1));
    const std::int64_t more = std::min(rows[s] - done[s], draw.between(1, 40));
    if (more == 0) continue;
    const Tensor key = normal_tensor({1, options.kv_heads, more, options.head_dim},
                                     seed + s * 1000 + static_cast<std::uint64_t>(done[s]), DType::f32),
                 value =
                     normal_tensor({1, options.kv_heads, more, options.value_dim},
                                   seed + 500 + s * 1000 + static_cast<std::uint64_t>(done[s]), DType::f32);
    const std::int64_t sequence[] = {static_cast<std::int64_t>(s)};
    cache.append(key, value, Tensor::from<std::int64_t>({0, more}, {2}), sequence);
    done[s] += more;
  }
  return cache;
}

// The rows of a cache as attention reads them, [B, Hkv, most, width].
Tensor rows_of(const KvCache& cache, bool are_keys, std::int64_t most, DType dtype) {
  const std::int64_t width = are_keys ? cache.head_dim() : cache.value_dim();
  Tensor all({cache.sequences(), cache.kv_heads(), most, width});
  for (std::int64_t s = 0; s < cache.sequences(); ++s) {
    const Tensor rows = are_keys ? cache.keys(s) : cache.values(s);
    for (std::int64_t h = 0; h < cache.kv_heads(); ++h)
      for (std::int64_t j = 0; j < rows.size(1); ++j)
        for (std::int64_t d = 0; d < width; ++d) all.at<float>(s, h, j, d) = rows.at<float>(h, j, d);
  }
  return Tensor::copy_of(all, dtype);
}

Tensor random_lists(Draw& draw, std::int64_t heads, std::int64_t queries, std::int64_t keys,
                    std::int64_t room) {
  Tensor lists({2, heads, queries, room}, DType::i32);
  std::vector<std::int32_t> all(static_cast<std::size_t>(keys));
  std::iota(all.begin(), all.end(), 0);
  const auto to = lists.values<std::int32_t>();
  for (std::size_t n = 0; n < to.size(); ++n) {
    const std::size_t place = n % static_cast<std::size_t>(room);
    std::swap(all[place],
              all[static_cast<std::size_t>(draw.between(static_cast<std::int64_t>(place), keys - 1))]);
    to[n] = draw.chance(0.1) ? -1 : all[place];
  }
  return lists;
}

TEST(KeyListsOverCaches, GiveTheResultsOfTensorsWithTheSameRows) {
  for (std::uint64_t n = 0; n < heed::test::share_of(240); ++n) {
    SCOPED_TRACE(n);
    Draw draw(kSeed, n);
    heed::KvCacheOptions options;
    options.kv_heads = draw.between(1, 2);
    options.head_dim = draw.pick<std::int64_t>({16, 24, 64});
    options.value_dim = draw.pick<std::int64_t>({16, 40});
    options.format = draw.pick<CacheFormat>({CacheFormat::f32, CacheFormat::bf16, CacheFormat::f16,
                                             CacheFormat::int8, CacheFormat::int4, CacheFormat::fp8});
    options.group = 8;
    const bool codes = has_codes(options.format);
    const std::vector<std::int64_t> rows{draw.between(1, 200), draw.between(1, 200)};
    KvCache cache = filled(draw, n, options, rows);
    const std::int64_t most = std::max(rows[0], rows[1]), heads = options.kv_heads * draw.between(1, 14),
                       queries = draw.between(1, 4);
    const DType dtype = codes                                 ? DType::f32
                        : options.format == CacheFormat::bf16 ? DType::bf16
                        : options.format == CacheFormat::f16  ? DType::f16
                                                              : DType::f32;
    const Tensor query = normal_tensor({2, heads, queries, options.head_dim}, n + 77, dtype);
    AttentionOptions call;
    call.need = Need::lse | Need::entropy | Need::distance;
    call.top_k = draw.between(1, 5);
    call.causal = draw.chance(0.5);
    call.threads = static_cast<int>(draw.between(1, 3));
    const Tensor lists = random_lists(draw, codes || draw.chance(0.5) ? 1 : options.kv_heads, queries, most,
                                      std::min<std::int64_t>(most, draw.between(1, 60)));
    call.sparse_mask = SparseMask::key_lists(lists, most, {}, heed::Gather::always);
    const auto got = heed::attention(query, cache, call);

    const Tensor key = rows_of(cache, true, most, dtype), value = rows_of(cache, false, most, dtype);
    const Tensor lengths = Tensor::from<std::int64_t>({rows[0], rows[1]}, {2});
    AttentionOptions plain = call;
    plain.kv_lengths = lengths;
    plain.align = heed::Align::bottom_right;
    plain.threads = 1;
    const heed::AttentionPlan plan = heed::plan_attention(query, key, value, plain);
    ASSERT_TRUE(plan.passes[0].because.starts_with("Lists have room for ")) << plan.passes[0].because;
    const auto expected = heed::attention(query, key, value, plain);
    if (!codes) {
      ASSERT_TRUE(heed::test::same_bits(got, expected));
    } else {
      ASSERT_LT(heed::test::largest_difference(got.output, expected.output), 1e-4);
      ASSERT_LT(heed::test::largest_difference(got.distance, expected.distance), 1e-2);
    }
    // The mask visits all keys, and agrees up to rounding.
    plain.sparse_mask = SparseMask::key_lists(lists, most, {}, heed::Gather::never);
    const auto masked = heed::attention(query, key, value, plain);
    ASSERT_LT(heed::test::largest_difference(got.output, masked.output), dtype == DType::f32 ? 1e-4 : 0.05);
  }
}

TEST(KeyLists, AreGatheredByDefaultWhereTheyAreShort) {
  const Tensor key({1, 1, 8192, 16}), fewer({1, 1, 8191, 16});
  const auto is_gathered = [&](const Tensor& keys, std::int64_t room, AttentionOptions options = {},
                               std::int64_t queries = 1) {
    Tensor lists({queries, room}, DType::i32);
    for (std::int32_t& unused : lists.values<std::int32_t>()) unused = -1;
    options.sparse_mask = SparseMask::key_lists(lists, keys.size(2));
    const auto plan = heed::plan_attention(Tensor({1, 2, queries, 16}), keys, keys, options);
    return !plan.passes.empty() && plan.passes[0].because.starts_with("Lists have room");
  };
  EXPECT_TRUE(is_gathered(key, 1024));
  EXPECT_FALSE(is_gathered(key, 1025));
  EXPECT_FALSE(is_gathered(fewer, 1));
  EXPECT_TRUE(is_gathered(key, 256, {}, 64));
  EXPECT_FALSE(is_gathered(key, 257, {}, 64));
  EXPECT_FALSE(is_gathered(key, 8, {.need = Need::weights}));
  EXPECT_FALSE(is_gathered(key, 8, {.kernel = heed::Kernel::reference}));
  const Tensor bias({1, 8192});
  EXPECT_FALSE(is_gathered(key, 8, {.bias = bias}));
}

TEST(KeyLists, AreGatheredForGradientsWhereTheForwardPassGathersThem) {
  constexpr std::int64_t kKeys = 8192, kRoom = 200;
  Draw draw(kSeed, 1);
  const Tensor query = normal_tensor({2, 4, 8, 16}, 1, DType::f32),
               key = normal_tensor({2, 2, kKeys, 16}, 2, DType::f32),
               value = normal_tensor({2, 2, kKeys, 24}, 3, DType::f32),
               grad = normal_tensor({2, 4, 8, 24}, 4, DType::f32), weights({2, 4, 8, kKeys}),
               bias({1, kKeys}), decay({2, 4, kKeys}), lists = random_lists(draw, 1, 8, kKeys, kRoom);
  AttentionOptions options;
  options.need = Need::lse;
  options.sparse_mask = SparseMask::key_lists(lists, kKeys, {}, heed::Gather::never);
  const auto result = heed::attention(query, key, value, options);
  heed::AttentionBackwardInputs inputs{.query = query,
                                       .key = key,
                                       .value = value,
                                       .output = result.output,
                                       .lse = result.lse,
                                       .grad_output = grad};
  const auto masked = heed::attention_backward(inputs, options);
  const auto is_gathered = [&](const AttentionOptions& call) {
    const auto plan = heed::plan_attention_backward(inputs, call);
    return !plan.passes.empty() && plan.passes[0].because.starts_with("Lists have room for 200 of 8192 keys");
  };
  EXPECT_FALSE(is_gathered(options));
  options.sparse_mask = SparseMask::key_lists(lists, kKeys);
  EXPECT_TRUE(is_gathered(options));
  // 64 rows with 200 keys, of which three products have 16 channels and two have 24.
  EXPECT_EQ(heed::plan_attention_backward(inputs, options).multiply_adds, 64.0 * 200 * (3 * 16 + 2 * 24));
  AttentionOptions other = options;
  other.bias = bias;
  EXPECT_FALSE(is_gathered(other));
  other = options;
  other.decay = decay;
  EXPECT_FALSE(is_gathered(other));
  inputs.grad_weights = weights;
  EXPECT_FALSE(is_gathered(options));
  inputs.grad_weights.reset();
  // Both are sums in f32 of at most 200 numbers of the size of 1, with 2^-24 as the error of each addition.
  const auto gathered = heed::attention_backward(inputs, options);
  const double most = 200 * 0x1p-24;
  EXPECT_LT(heed::test::largest_difference(gathered.query, masked.query), most);
  EXPECT_LT(heed::test::largest_difference(gathered.key, masked.key), most);
  EXPECT_LT(heed::test::largest_difference(gathered.value, masked.value), most);
}

// Calls of few rows split long lists, and of bf16 some targets have matrix tiles: neither depends on what
// else is in the call.
TEST(KeyLists, GatheredGradientsHaveTheSameBitsInPartsAndBesideAnyOtherGradients) {
  const heed::test::EachTarget targets;
  struct Size {
    DType dtype;
    std::int64_t heads, keys, room;
  };
  for (const Size size : {Size{DType::f32, 1, 8192, 2048}, Size{DType::bf16, 16, 256, 64}}) {
    Draw draw(kSeed, 2);
    const auto drawn = [&](std::int64_t heads, std::int64_t rows, std::uint64_t seed) {
      return Tensor::copy_of(normal_tensor({2, heads, rows, 16}, seed, DType::f32), size.dtype);
    };
    const Tensor query = drawn(size.heads, 4, 1), key = drawn(1, size.keys, 2),
                 value = drawn(1, size.keys, 3), grad = drawn(size.heads, 4, 4),
                 lists = random_lists(draw, 1, 4, size.keys, size.room);
    const AttentionOptions options{
        .sparse_mask = SparseMask::key_lists(lists, size.keys, {}, heed::Gather::always), .need = Need::lse};
    for (const std::string& target : targets.available()) {
      SCOPED_TRACE(target);
      heed::set_target(target);
      const auto result = heed::attention(query, key, value, options);
      const heed::AttentionBackwardInputs inputs{query, key, value, result.output, result.lse, grad};
      const auto whole = heed::attention_backward(inputs, options);
      EXPECT_TRUE(heed::test::same_bits(
          heed::attention_backward(inputs, options, {.key = false, .value = false}).query, whole.query));
      for (std::int64_t b = 0; b < 2; ++b) {
        const auto part = [&](const Tensor& tensor) { return tensor.view().narrow(0, b, 1); };
        Tensor by_query({1, size.heads, 4, 16}, size.dtype), by_key({1, 1, size.keys, 16}, size.dtype),
            by_value({1, 1, size.keys, 16}, size.dtype);
        heed::AttentionGradientViews views;
        views.query = by_query.mutable_view();
        views.key = by_key.mutable_view();
        views.value = by_value.mutable_view();
        const heed::PositionRange all{0, 4};
        (void)heed::attention_backward_part_into(
            {part(query), part(key), part(value), part(result.output), part(result.lse), part(grad)}, options,
            {.batch = 2, .heads = size.heads, .query_length = 4, .batch_begin = b, .rows = {&all, 1}}, views);
        EXPECT_TRUE(heed::test::same_bits(by_query, part(whole.query)));
        EXPECT_TRUE(heed::test::same_bits(by_key, part(whole.key)));
        EXPECT_TRUE(heed::test::same_bits(by_value, part(whole.value)));
      }
    }
  }
}

}  // namespace
