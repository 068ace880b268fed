// The pieces of C++ that documents show, word for word (tests/scripts/documents.py compares them).
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>

#include "heed/attention.hpp"
#include "heed/random.hpp"

namespace {

TEST(Documents, KvCache) {
  heed::Generator generator(1);
  const auto key = randn(generator, {2, 8, 3, 128}), value = randn(generator, {2, 8, 3, 128});
  const auto query = randn(generator, {2, 16, 1, 128});

  using namespace heed;
  KvCache cache({.sequences = 2,
                 .kv_heads = 8,
                 .head_dim = 128,
                 .format = CacheFormat::bf16,
                 .layout = CacheLayout::paged,
                 .capacity = 4096});
  cache.append(key, value);  // [B, Hkv, L, D], a prompt or one token
  const auto result = attention(query, cache, {.need = Need::lse | Need::received, .top_k = 8});
  cache.add_received(result.received, 0.99);  // a running sum with decay, for eviction

  EXPECT_EQ(result.top_k_index.at<std::int64_t>(1, 15, 0, 3), -1) << "there are three keys";
  EXPECT_FLOAT_EQ(cache.received(0).at<float>(0, 0) + cache.received(0).at<float>(0, 1) +
                      cache.received(0).at<float>(0, 2),
                  2)
      << "two query heads share a key head";
}

TEST(Documents, Masks) {
  heed::Generator generator(1);
  constexpr std::int64_t L = 6;
  const auto query = randn(generator, {L, 8}), key = randn(generator, {L, 8}),
             value = randn(generator, {L, 8});
  const std::int64_t lengths[] = {4, 2};

  using namespace heed;
  const SparseMask mask = masks::documents(lengths, true) & masks::sliding_window(1023, 0, L, L);
  const auto result = attention(query, key, value, {.sparse_mask = mask, .need = Need::masked_mass});

  EXPECT_FALSE(mask.allows(0, 0, 4, 3));
  EXPECT_GT(result.masked_mass.at<float>(4), 0);
}

TEST(Documents, Expressions) {
  constexpr std::int64_t L = 4;

  using namespace heed;
  const Tensor document = Tensor::from<std::int64_t>({0, 0, 1, 1}, {L});  // each token's document
  const std::pair<std::string, TensorView> arrays[] = {{"doc", document}};
  auto mask = SparseMask::expression("j <= i && doc[i] == doc[j]", L, L, arrays);
  auto mod = ScoreMod::expression("where(i - j < 512, s, 20 * tanh(s / 20))");

  EXPECT_TRUE(mask.allows(0, 0, 1, 0) && mask.allows(0, 0, 3, 2) && !mask.allows(0, 0, 2, 1));
  EXPECT_FALSE(mod.is_empty());
}

TEST(Documents, Eviction) {
  heed::Generator generator(1);
  heed::KvCache cache({.sequences = 1, .kv_heads = 1, .head_dim = 8, .capacity = 16});
  const heed::EvictionPolicy policy = {.kind = heed::EvictionKind::h2o, .chosen = 1, .recent = 2};
  for (int step = 0; step < 5; ++step) {
    const auto key = randn(generator, {1, 1, 1, 8}), value = randn(generator, {1, 1, 1, 8});
    const auto query = randn(generator, {1, 1, 1, 8});

    using namespace heed;
    cache.append(key, value);
    cache.evict(0, positions_to_evict(cache, 0, policy));
    const auto result = attention(query, cache, {.need = Need::received});
    cache.add_received(result.received, policy.decay);  // h2o alone
  }
  EXPECT_EQ(cache.rows(0), 3);
}

}  // namespace
