// Sequences with a common prefix, which is read once for all of them. Each row's results must have the same
// bits as in a call over its sequence alone, and agree with the definitions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "attention_support.hpp"
#include "compare_results.hpp"
#include "each_target.hpp"
#include "fused_rounding.hpp"
#include "heed/attention/kv_cache.hpp"
#include "path_watch.hpp"
#include "random_call.hpp"
#include "support.hpp"

namespace {

using heed::AttentionOptions;
using heed::AttentionResult;
using heed::CacheFormat;
using heed::CacheLayout;
using heed::DType;
using heed::KvCache;
using heed::KvCacheOptions;
using heed::Need;
using heed::Tensor;
using heed::TensorView;
using heed::test::Draw;

constexpr std::uint64_t kSeed = 20261125;

Tensor random_tensor(Draw& draw, const heed::Dims& shape, DType dtype) {
  Tensor numbers(shape, DType::f32);
  for (float& x : numbers.values<float>()) x = static_cast<float>(draw.normal());
  return Tensor::copy_of(numbers, dtype);
}

struct Shared {
  KvCache cache;
  Tensor query;  // [B, H, Lq, D]
  AttentionOptions options;
};

// Draws a prefix of several spans, forks of it, and further rows for each fork.
Shared draw_shared(std::uint64_t index) {
  Draw draw(kSeed, index);
  KvCacheOptions c;
  c.kv_heads = draw.between(1, 2);
  c.head_dim = draw.pick<std::int64_t>({16, 32, 64});
  c.value_dim = draw.pick<std::int64_t>({16, 32, 40});
  c.format = draw.pick<CacheFormat>(
      {CacheFormat::f32, CacheFormat::bf16, CacheFormat::f16, CacheFormat::int8, CacheFormat::int4});
  c.layout = CacheLayout::paged;
  c.page_size = draw.pick<std::int64_t>({1, 16, 100});
  c.order = draw.chance(0.5) ? heed::PageOrder::hnd : heed::PageOrder::nhd;
  c.capacity = 16000;
  const DType dtype = c.format == CacheFormat::bf16  ? DType::bf16
                      : c.format == CacheFormat::f16 ? DType::f16
                                                     : DType::f32;
  Shared made{KvCache(c), {}, {}};
  const std::int64_t prefix = draw.between(3000, 7500);
  made.cache.append(random_tensor(draw, {1, c.kv_heads, prefix, c.head_dim}, dtype),
                    random_tensor(draw, {1, c.kv_heads, prefix, c.value_dim}, dtype));
  const std::int64_t batch = draw.between(2, 20);
  for (std::int64_t b = 1; b < batch; ++b) made.cache.fork(draw.between(0, b - 1));
  std::vector<std::int64_t> offsets{0};
  for (std::int64_t b = 0; b < batch; ++b)
    offsets.push_back(offsets.back() + (draw.chance(0.5) ? draw.between(0, 60) : 0));
  made.cache.append(random_tensor(draw, {1, c.kv_heads, offsets.back(), c.head_dim}, dtype),
                    random_tensor(draw, {1, c.kv_heads, offsets.back(), c.value_dim}, dtype),
                    TensorView(offsets.data(), {batch + 1}));
  const std::int64_t heads = c.kv_heads * draw.between(1, 4);
  made.query = random_tensor(draw, {batch, heads, draw.between(1, 3), c.head_dim}, dtype);
  AttentionOptions& o = made.options;
  o.causal = draw.chance(0.5);
  if (draw.chance(0.3)) o.window = {draw.between(100, 6000), 0};
  o.need = Need::lse;
  if (draw.chance(0.5)) o.need |= Need::received | Need::weights;
  if (draw.chance(0.5)) o.need |= Need::entropy | Need::distance;
  if (draw.chance(0.5)) o.top_k = draw.between(1, 5);
  o.threads = static_cast<int>(draw.between(1, 3));
  o.kernel = heed::Kernel::fused;
  return made;
}

AttentionResult alone(const Shared& made, std::int64_t b) {
  const std::int64_t which[] = {b};
  return heed::attention(made.query.view().narrow(0, b, 1), made.cache, made.options, {.sequences = which});
}

// The part of a result for batch entry b and its `keys` keys.
TensorView part_of(const AttentionResult& all, std::size_t i, std::int64_t b, std::int64_t keys) {
  const heed::ResultShape shape = heed::result_entry(i).shape;
  const TensorView view = heed::result<Tensor>(all, i).view().narrow(0, b, 1);
  const bool of_keys = shape == heed::ResultShape::pair || shape == heed::ResultShape::key;
  return of_keys ? view.narrow(view.rank() - 1, 0, keys) : view;
}

void compare_bits(const Shared& made, const AttentionResult& all, std::int64_t b,
                  const AttentionResult& one) {
  for (std::size_t i = 0; i < heed::kResultCount; ++i) {
    const Tensor& expected = heed::result<Tensor>(one, i);
    if (expected.count() == 0) continue;
    ASSERT_TRUE(heed::test::same_bits(part_of(all, i, b, made.cache.rows(b)), expected.view()))
        << heed::result_entry(i).name() << " of sequence " << b;
  }
}

void compare_with_definitions(const Shared& made, std::int64_t b, const AttentionResult& one,
                              const std::string& target, heed::test::RowTally& tally) {
  const auto as_batch = [&](Tensor rows, std::int64_t width) {
    return std::move(rows).reshaped({1, made.cache.kv_heads(), made.cache.rows(b), width});
  };
  AttentionOptions options = made.options;
  options.query_offset = made.cache.length(b) - made.query.size(2);
  const heed::test::Naive naive = heed::test::naive_attention(
      Tensor::copy_of(made.query.view().narrow(0, b, 1)), as_batch(made.cache.keys(b), made.cache.head_dim()),
      as_batch(made.cache.values(b), made.cache.value_dim()), options);
  const auto rounding = heed::test::fused_rounding(made.query.dtype(), options, target);
  ASSERT_EQ(heed::test::compare_results(one, options, naive, rounding, tally), "") << "sequence " << b;
}

TEST(KvCachePrefix, SharedGivesTheBitsOfEachSequenceAloneAndTheDefinitions) {
  const heed::test::EachTarget targets;
  for (const std::string& target : targets.available()) {
    SCOPED_TRACE(target);
    heed::set_target(target);
    heed::test::PathWatch paths;
    heed::test::RowTally tally;
    for (std::uint64_t index = 0; index < heed::test::share_of(24); ++index) {
      SCOPED_TRACE(index);
      const Shared made = draw_shared(index);
      paths.start_call();
      const AttentionResult all = heed::attention(made.query, made.cache, made.options);
      paths.end_call();
      for (std::int64_t b = 0; b < made.query.size(0); ++b) {
        const AttentionResult one = alone(made, b);
        compare_bits(made, all, b, one);
        if (b + 1 == made.query.size(0)) compare_with_definitions(made, b, one, target, tally);
        if (HasFatalFailure()) return;
      }
    }
    EXPECT_GT(paths.taken(heed::test::Path::spans_together), 0);
  }
}

}  // namespace
