// Values that are the first channels of the keys: views in plain calls, and caches that store such rows once.
// tests/kv_cache_calls_test.cpp draws calls over such caches, and kv_cache_copy_test.cpp copies and saves
// them.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "attention_support.hpp"
#include "compare_gradients.hpp"
#include "each_target.hpp"
#include "expect_tight.hpp"
#include "fused_calls.hpp"
#include "fused_rounding.hpp"
#include "gradient_rounding.hpp"
#include "heed/attention/kv_cache.hpp"
#include "support.hpp"

namespace {

using heed::AttentionGradients;
using heed::CacheFormat;
using heed::CacheLayout;
using heed::DType;
using heed::Kernel;
using heed::KvCache;
using heed::KvCacheOptions;
using heed::Tensor;
using heed::TensorView;
using heed::test::normal_tensor;
using heed::test::same_bits;

constexpr std::uint64_t kSeed = 20261127;

// A random call whose values are channels of its keys.
heed::test::CheckedCall draw_call(std::uint64_t index, heed::test::CallLimits limits) {
  limits.poison = false;
  heed::test::RandomCall call = heed::test::random_call(kSeed, index, limits);
  heed::test::Draw draw(kSeed ^ 0x1a7e, index);
  call.value = call.key.narrow(call.key.rank() - 1, 0, draw.between(1, call.key.size(-1)));
  heed::test::Naive naive = heed::test::naive_attention(call.query, call.key, call.value, call.options);
  return {std::move(call), std::move(naive)};
}

// Sizes of MLA in small: one key head, D = Dv + rotary channels.
heed::test::CallLimits latent_calls() {
  heed::test::CallLimits limits = heed::test::small_calls();
  limits.kv_heads = {1};
  limits.groups = {4, 16};
  limits.query_lengths = {1, 1, 2, 5};
  limits.lengths = {1, 17, 50, 130, 200};
  limits.dims = {36, 72, 144};
  return limits;
}

TEST(ValuesInKeys, AsViewsAgreeWithTheDefinitionsOnEveryTarget) {
  const heed::test::EachTarget targets;
  std::map<std::string, heed::test::RowTally> tallies;
  for (const auto& limits : {heed::test::small_calls(), latent_calls()})
    for (std::uint64_t index = 0; index < heed::test::share_of(500); ++index) {
      heed::test::CheckedCall checked = draw_call(index, limits);
      auto& [call, naive] = checked;
      call.options.kernel = Kernel::fused;
      for (const std::string& target : targets.available()) {
        if (!targets.takes(target, index, 8)) continue;
        SCOPED_TRACE(target);
        heed::set_target(target);
        const auto result = heed::attention(call.query, call.key, call.value, call.options);
        const std::string failure = heed::test::compare_results(
            result, call.options, naive, heed::test::fused_rounding(call.query.dtype(), call.options, target),
            tallies[target]);
        ASSERT_EQ(failure, "") << describe(call);
        heed::AttentionOptions other = call.options;
        other.threads = call.options.threads == 1 ? 2 : 1;
        ASSERT_TRUE(same_bits(result, heed::attention(call.query, call.key, call.value, other)));
      }
    }
  ASSERT_FALSE(tallies.empty());
  for (const auto& [target, tally] : tallies) {
    SCOPED_TRACE(target);
    heed::test::expect_tight(tally, 0.9);
  }
}

TEST(ValuesInKeys, AsViewsOfEveryDtypeAgreeWithTheDefinitionsInTheReference) {
  heed::test::RowTally tally;
  for (std::uint64_t index = 0; index < heed::test::share_of(300); ++index) {
    heed::test::CheckedCall checked = draw_call(index, {});
    auto& [call, naive] = checked;
    call.options.kernel = Kernel::reference;
    const auto result = heed::attention(call.query, call.key, call.value, call.options);
    ASSERT_EQ(heed::test::compare_results(
                  result, call.options, naive,
                  heed::test::fused_rounding(call.query.dtype(), call.options, "plain"), tally),
              "")
        << describe(call);
  }
}

// dK is the gradient by the scores alone and dV that by the output alone, as for separate tensors.
TEST(ValuesInKeys, GradientsByKeyAndValueComeBackApart) {
  const heed::test::EachTarget targets;
  std::map<std::string, heed::test::RowTally> tallies;
  for (const auto& limits : {heed::test::small_calls(), latent_calls()})
    for (std::uint64_t index = 0; index < heed::test::share_of(300); ++index) {
      heed::test::BackwardCall made = heed::test::BackwardCallMaker(draw_call(index, limits)).make();
      made.inputs.grad_weights.reset();
      made.call.options.kernel = Kernel::fused;
      for (const std::string& target : targets.available()) {
        if (!targets.takes(target, index, 4)) continue;
        SCOPED_TRACE(target);
        heed::set_target(target);
        const AttentionGradients gradients =
            heed::attention_backward(made.inputs, made.call.options, made.request);
        const std::string failure = heed::test::compare_gradients(
            made, gradients, heed::test::gradient_rounding(made, target), tallies[target]);
        ASSERT_EQ(failure, "") << describe(made.call);
      }
    }
  ASSERT_FALSE(tallies.empty());
  for (const auto& [target, tally] : tallies) {
    SCOPED_TRACE(target);
    // Scores of 144 channels whose keys ascend or cancel are large: the bound of five whole calls is beyond
    // first order, and one of them holds a fiftieth of all rows, and more of the first half of the calls.
    heed::test::expect_tight(tally, 0.9, heed::test::makes_all_calls() ? 0.03 : 0.05);
  }
}

// The loss sum(out * w) by a row x_j, of which k_j is all and v_j the beginning, by central differences in
// f64.
TEST(ValuesInKeys, TheGradientByTheSharedRowIsTheSumOfBoth) {
  const std::int64_t keys = 5, width = 6, values = 4;
  const Tensor query = normal_tensor({1, 3, 2, width}, 1), rows = normal_tensor({1, 1, keys, width}, 2),
               weight = normal_tensor({1, 3, 2, values}, 3);
  const auto attend = [&](const Tensor& x) {
    return heed::attention(query, x, x.view().narrow(3, 0, values),
                           {.causal = true, .need = heed::Need::lse});
  };
  const auto loss = [&](const Tensor& x) {
    const Tensor output = attend(x).output;
    double sum = 0;
    for (std::size_t i = 0; i < output.values<double>().size(); ++i)
      sum += output.values<double>()[i] * weight.values<double>()[i];
    return sum;
  };
  const auto result = attend(rows);
  const AttentionGradients gradients = heed::attention_backward(
      {query, rows, rows.view().narrow(3, 0, values), result.output, result.lse, weight}, {.causal = true});
  for (std::int64_t j = 0; j < keys; ++j)
    for (std::int64_t c = 0; c < width; ++c) {
      const double step = 1e-5;
      Tensor up = Tensor::copy_of(rows), down = Tensor::copy_of(rows);
      up.at<double>(0, 0, j, c) += step;
      down.at<double>(0, 0, j, c) -= step;
      const double by_row =
          gradients.key.at<double>(0, 0, j, c) + (c < values ? gradients.value.at<double>(0, 0, j, c) : 0.0);
      EXPECT_NEAR(by_row, (loss(up) - loss(down)) / (2 * step), 1e-8);
    }
}

KvCacheOptions options_of(CacheLayout layout, CacheFormat format, bool in_keys) {
  KvCacheOptions options{
      .kv_heads = 1, .head_dim = 576, .value_dim = 512, .format = format, .layout = layout};
  options.values_in_keys = in_keys;
  if (layout == CacheLayout::ring)
    options.window = 128;
  else
    options.capacity = 128;
  return options;
}

std::int64_t bits_of(CacheFormat format) {
  switch (format) {
    case CacheFormat::f32:
      return 32;
    case CacheFormat::bf16:
    case CacheFormat::f16:
      return 16;
    case CacheFormat::int4:
      return 4;
    default:
      return 8;
  }
}

constexpr CacheLayout kLayouts[] = {CacheLayout::contiguous, CacheLayout::paged, CacheLayout::ring};
constexpr CacheFormat kFormats[] = {CacheFormat::f32,  CacheFormat::bf16, CacheFormat::f16,
                                    CacheFormat::int8, CacheFormat::int4, CacheFormat::fp8};

TEST(CacheOfValuesInKeys, HasTheBytesOfTheKeysAlone) {
  const Tensor key = normal_tensor({1, 1, 64, 576}, 1, DType::f32);
  const TensorView value = key.view().narrow(3, 0, 512);
  for (const CacheLayout layout : kLayouts)
    for (const CacheFormat format : kFormats) {
      SCOPED_TRACE(std::string(heed::name_of(layout)) + " " + std::string(heed::name_of(format)));
      KvCache once(options_of(layout, format, true)), twice(options_of(layout, format, false));
      once.append_keys(key);
      twice.append(key, value);
      const std::int64_t scales = format == CacheFormat::int4 ? 4 : bits_of(format) == 8 ? 2 : 0;
      const std::int64_t rows = 128 * 576 * bits_of(format) / 8;
      EXPECT_EQ(once.stats().bytes, rows + 2 * 576 * scales);  // two groups of 32 positions
      EXPECT_EQ(twice.stats().bytes, once.stats().bytes + 128 * (512 * bits_of(format) / 8 + 16 * scales));
      EXPECT_EQ(once.stats().tail_bytes, scales == 0 ? 0 : 64 * 576 * 4);
      EXPECT_TRUE(same_bits(once.keys(0), twice.keys(0)));
      EXPECT_TRUE(same_bits(once.values(0), once.keys(0).view().narrow(2, 0, 512)));
    }
}

// At the sizes of DeepSeek-V3, with a few heads of one key head.
TEST(CacheOfValuesInKeys, GivesTheBitsOfTwoTensorsAtTheSizesOfMla) {
  const Tensor key = normal_tensor({1, 1, 128, 576}, 1, DType::f32);
  const TensorView value = key.view().narrow(3, 0, 512);
  for (const CacheFormat format : {CacheFormat::f32, CacheFormat::bf16, CacheFormat::f16}) {
    const DType dtype = format == CacheFormat::f32    ? DType::f32
                        : format == CacheFormat::bf16 ? DType::bf16
                                                      : DType::f16;
    for (const std::int64_t heads : {1, 3, 16}) {
      const Tensor query = normal_tensor({1, heads, 1, 576}, 2, dtype);
      const heed::AttentionOptions options{.scale = 0.07, .need = heed::Need::lse | heed::Need::received};
      KvCache twice(options_of(CacheLayout::contiguous, format, false));
      twice.append(key, value);
      const auto expected = heed::attention(query, twice, options);
      for (const CacheLayout layout : kLayouts) {
        KvCache once(options_of(layout, format, true));
        once.append_keys(key);
        EXPECT_TRUE(same_bits(heed::attention(query, once, options), expected)) << heed::name_of(layout);
      }
    }
  }
}

TEST(CacheOfValuesInKeys, OverTheCallersMemoryIsRecognisedByPointerAndStrides) {
  Tensor rows = normal_tensor({2, 1, 9, 8}, 1, DType::f32);
  const std::int64_t lengths[] = {5, 3};
  const auto over = [&](std::int64_t begin, std::int64_t width) {
    return KvCache::over(rows.mutable_view(), rows.mutable_view().narrow(3, begin, width),
                         TensorView(lengths, {2}));
  };
  EXPECT_TRUE(over(0, 6).values_in_keys());
  EXPECT_TRUE(over(0, 8).values_in_keys());
  EXPECT_EQ(heed::test::message_of([&] { (void)over(2, 6); }),
            "value overlaps key in memory; separate memory is expected");
  const KvCache read = KvCache::over(rows.view(), rows.view().narrow(3, 2, 6), TensorView(lengths, {2}));
  EXPECT_FALSE(read.values_in_keys());  // nothing is written
  KvCache cache = over(0, 6);
  const Tensor more = normal_tensor({2, 1, 2, 8}, 2, DType::f32);
  cache.append_keys(more);
  EXPECT_EQ(rows.at<float>(0, 0, 5, 7), more.at<float>(0, 0, 0, 7));
  EXPECT_TRUE(
      same_bits(cache.values(1), rows.view().narrow(0, 1, 1).select(0, 0).narrow(1, 0, 5).narrow(2, 0, 6)));
  const KvCache copy = cache.copy();
  EXPECT_TRUE(copy.values_in_keys());
  EXPECT_EQ(copy.stats().bytes, 2 * 9 * 8 * 4);
  EXPECT_TRUE(same_bits(copy.values(0), cache.values(0)));
}

// Strides of axes of size 1 mean nothing, and NumPy changes them.
TEST(CacheOfValuesInKeys, OneRowIsRecognisedWhateverItsStrides) {
  Tensor row = normal_tensor({1, 1, 1, 8}, 1, DType::f32);
  const std::int64_t length[] = {0};
  const heed::MutableTensorView key = row.mutable_view(), value(key.data(), DType::f32, {1, 1, 1, 4});
  EXPECT_TRUE(KvCache::over(key, value, TensorView(length, {1})).values_in_keys());
}

TEST(CacheOfValuesInKeys, WrongCallsAreRefusedInOneSentence) {
  const auto create = [](auto change) {
    KvCacheOptions options = options_of(CacheLayout::paged, CacheFormat::int8, true);
    change(options);
    return heed::test::message_of([&] { const KvCache cache(options); });
  };
  EXPECT_EQ(create([](KvCacheOptions& o) { o.value_dim = 577; }),
            "value_dim is 577; at most head_dim = 576 is expected if values are channels of the keys");
  EXPECT_EQ(create([](KvCacheOptions& o) { o.rotate = true; }),
            "rotate is set for a cache whose values are channels of the keys; false is expected");
  const Tensor key = normal_tensor({1, 1, 2, 576}, 1, DType::f32);
  const TensorView value = key.view().narrow(3, 0, 512);
  KvCache once(options_of(CacheLayout::paged, CacheFormat::f32, true)),
      twice(options_of(CacheLayout::paged, CacheFormat::f32, false));
  EXPECT_EQ(heed::test::message_of([&] { once.append(key, value); }),
            "value is given, but the values of this cache are channels of its keys; key alone is expected");
  EXPECT_EQ(heed::test::message_of([&] { twice.append_keys(key); }),
            "value is missing; it may be absent only if the values of a cache are channels of its keys");
  EXPECT_EQ(once.length(0) + twice.length(0), 0);
}

}  // namespace
