// The lightning indexer beside its formula in f64: the chosen keys, ties, causality, and errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "attention_support.hpp"
#include "each_target.hpp"
#include "heed/attention/lightning_indexer.hpp"
#include "heed/attention/masks.hpp"
#include "naive_attention.hpp"
#include "random_call.hpp"
#include "support.hpp"

namespace {

using heed::DType;
using heed::IndexerOptions;
using heed::Tensor;
using heed::test::Draw;
using heed::test::normal_tensor;

constexpr std::uint64_t kSeed = 20261127;

struct Inputs {
  Tensor query, key, weights;
};

// Whole numbers from -2 to 2: their sums are exact, and many are equal.
Tensor whole_tensor(Draw& draw, const heed::Dims& shape, DType dtype) {
  Tensor tensor(shape, DType::f64);
  for (double& x : tensor.values<double>()) x = static_cast<double>(draw.between(-2, 2));
  return Tensor::copy_of(tensor, dtype);
}

// A score, and the sum of the absolute terms, which bounds its error: of each batch entry, row and key.
using Scores = std::vector<std::pair<double, double>>;

std::pair<double, double> score_of(const Inputs& in, std::int64_t b, std::int64_t i, std::int64_t j) {
  using heed::test::naive_element;
  double score = 0, size = 0;
  for (std::int64_t h = 0; h < in.query.size(1); ++h) {
    double product = 0, terms = 0;
    for (std::int64_t d = 0; d < in.query.size(3); ++d) {
      const double term = static_cast<double>(naive_element(in.query, {b, h, i, d})) *
                          static_cast<double>(naive_element(in.key, {b, 0, j, d}));
      product += term;
      terms += std::abs(term);
    }
    const auto weight = static_cast<double>(naive_element(in.weights, {0, b, h, i}));
    score += weight * std::max(product, 0.0);
    size += std::abs(weight) * terms;
  }
  return {score, size};
}

Scores scores_of(const Inputs& in) {
  Scores scores;
  for (std::int64_t b = 0; b < in.query.size(0); ++b)
    for (std::int64_t i = 0; i < in.query.size(2); ++i)
      for (std::int64_t j = 0; j < in.key.size(2); ++j) scores.push_back(score_of(in, b, i, j));
  return scores;
}

// Checks a row: as many keys as there may be, ascending, each as good as all others but for rounding. Exact
// scores give the very keys, of which the earlier one wins a tie.
void check_row(const Inputs& in, const Scores& all, const Tensor& indices, const IndexerOptions& options,
               std::int64_t b, std::int64_t i, bool exact) {
  const std::int64_t keys = in.key.size(2);
  const std::int64_t seen =
      options.causal ? std::clamp<std::int64_t>(i + options.query_offset + 1, 0, keys) : keys;
  const std::pair<double, double>* scores = all.data() + (b * in.query.size(2) + i) * keys;
  std::vector<std::int64_t> order(static_cast<std::size_t>(seen));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](auto x, auto y) { return scores[x].first > scores[y].first; });
  order.resize(std::min(order.size(), static_cast<std::size_t>(indices.size(3))));
  std::vector<std::int64_t> chosen;
  for (std::int64_t n = 0; n < indices.size(3); ++n) {
    const std::int32_t key = indices.at<std::int32_t>(b, 0, i, n);
    if (n < static_cast<std::int64_t>(order.size())) {
      ASSERT_TRUE(key >= 0 && key < seen && (chosen.empty() || chosen.back() < key)) << key;
      chosen.push_back(key);
    } else {
      ASSERT_EQ(key, -1);
    }
  }
  if (order.empty()) return;
  const auto [last, size] = scores[order.back()];
  std::sort(order.begin(), order.end());
  if (exact) {
    ASSERT_EQ(chosen, order);
  }
  const double terms = static_cast<double>(in.query.size(1) + in.query.size(3) + 2);
  for (const std::int64_t key : chosen) {
    const auto [score, own] = scores[key];
    ASSERT_GE(score, last - terms * 0x1p-24 * (size + own));
  }
}

TEST(LightningIndexer, ChoosesTheBestKeysOfEachRowForAnyThreads) {
  const heed::test::EachTarget targets;
  for (std::uint64_t n = 0; n < heed::test::share_of(160); ++n) {
    SCOPED_TRACE(n);
    Draw draw(kSeed, n);
    const std::int64_t batch = draw.between(1, 2), heads = draw.pick<std::int64_t>({1, 3, 12, 13, 30}),
                       queries = draw.between(0, 9), keys = draw.pick<std::int64_t>({0, 1, 31, 33, 100, 257}),
                       dim = draw.pick<std::int64_t>({1, 7, 16, 40});
    const DType dtype = draw.pick<DType>({DType::f32, DType::bf16, DType::f16});
    const bool exact = draw.chance(0.5);
    const auto make = [&](const heed::Dims& shape) {
      return exact ? whole_tensor(draw, shape, dtype) : normal_tensor(shape, kSeed + n, dtype);
    };
    const Inputs in{make({batch, heads, queries, dim}), make({batch, 1, keys, dim}),
                    make({batch, heads, queries})};
    const Scores scores = scores_of(in);
    IndexerOptions options{draw.pick<std::int64_t>({1, 5, 32, 1000}), draw.chance(0.6),
                           draw.between(-3, keys + 3), 1};
    for (const std::string& target : targets.available()) {
      if (!targets.takes(target, n, 8)) continue;
      SCOPED_TRACE(target);
      heed::set_target(target);
      const Tensor indices = heed::lightning_indexer(in.query, in.key, in.weights, options);
      ASSERT_EQ(indices.shape(), (heed::Dims{batch, 1, queries, std::min(options.top_k, keys)}));
      for (std::int64_t b = 0; b < batch; ++b)
        for (std::int64_t i = 0; i < queries; ++i) {
          check_row(in, scores, indices, options, b, i, exact);
          if (HasFatalFailure()) return;
        }
      IndexerOptions several = options;
      several.threads = 3;
      ASSERT_TRUE(
          heed::test::same_bits(indices, heed::lightning_indexer(in.query, in.key, in.weights, several)));
    }
  }
}

TEST(LightningIndexer, TakesANaNForTheLeastScore) {
  Tensor query({1, 1, 1, 2}), key({1, 1, 3, 2}), weights({1, 1, 1});
  for (Tensor* one : {&query, &key, &weights}) std::fill_n(one->values<float>().begin(), one->count(), 1.0f);
  key.values<float>()[0] = NAN;
  const Tensor indices = heed::lightning_indexer(query, key, weights, {.top_k = 2, .causal = false});
  EXPECT_EQ(indices.at<std::int32_t>(0, 0, 0, 0), 1);
  EXPECT_EQ(indices.at<std::int32_t>(0, 0, 0, 1), 2);
}

TEST(LightningIndexer, ItsListsAreAMask) {
  const Tensor query = normal_tensor({2, 3, 5, 8}, 1, DType::f32),
               key = normal_tensor({2, 1, 9, 8}, 2, DType::f32),
               weights = normal_tensor({2, 3, 5}, 3, DType::f32);
  const Tensor indices = heed::lightning_indexer(query, key, weights, {.top_k = 4});
  const heed::SparseMask mask = heed::SparseMask::key_lists(indices, 9);
  EXPECT_EQ(mask.batch(), 2);
  EXPECT_EQ(mask.heads(), 1);
  for (std::int64_t i = 0; i < 5; ++i) {
    std::int64_t count = 0;
    for (std::int64_t j = 0; j < 9; ++j) count += mask.allows(1, 0, i, j) ? 1 : 0;
    EXPECT_EQ(count, std::min<std::int64_t>(4, i + 1));
  }
}

TEST(LightningIndexer, ABatchWithoutRowsMayBeOfAnySize) {
  constexpr std::int64_t kMany = std::int64_t{1} << 40;
  const Tensor key({kMany, 1, 0, 8});
  EXPECT_EQ(heed::lightning_indexer(Tensor({kMany, 2, 0, 8}), key, Tensor({kMany, 2, 0})).shape(),
            (heed::Dims{kMany, 1, 0, 0}));
  EXPECT_EQ(heed::lightning_indexer(Tensor({kMany, 0, 3, 8}), key, Tensor({kMany, 0, 3})).shape(),
            (heed::Dims{kMany, 1, 3, 0}));
}

TEST(LightningIndexer, SaysWhatIsWrong) {
  const Tensor query({2, 3, 5, 8}), key({2, 1, 9, 8}), weights({2, 3, 5});
  const auto message = [&](const heed::TensorView& q, const heed::TensorView& k, const heed::TensorView& w,
                           const IndexerOptions& options = {}) -> std::string {
    return heed::test::message_of([&] { (void)heed::lightning_indexer(q, k, w, options); });
  };
  EXPECT_EQ(message(query, key, weights), "no error");
  EXPECT_EQ(message(Tensor({2, 3, 5, 8}, DType::f64), key, weights),
            "query has dtype f64; f32, f16 or bf16 is expected");
  EXPECT_EQ(message(query, Tensor({1, 9, 8}), weights), "key has shape [1, 9, 8]; [B, 1, Lk, D] is expected");
  EXPECT_EQ(message(query, Tensor({2, 3, 9, 8}), weights),
            "key has shape [2, 3, 9, 8]; [2, 1, Lk, 8] is expected for query of shape [2, 3, 5, 8]");
  EXPECT_EQ(message(query, key, Tensor({2, 5, 3})), "weights has shape [2, 5, 3]; [2, 3, 5] is expected");
  EXPECT_EQ(message(query, key, weights, {.top_k = 0}), "top_k is 0; 1 or more is expected");
  EXPECT_EQ(message(query, key, weights, {.query_offset = INT64_MIN}),
            "query_offset is -9223372036854775808; -2^60 to 2^60 is expected");
  EXPECT_EQ(message(query, key, weights, {.threads = -1}),
            "threads is -1; 0 (all of the machine) or more is expected");
  Tensor indices({2, 1, 5, 9}, DType::i64);
  EXPECT_THROW(heed::lightning_indexer_into(query, key, weights, {}, indices.mutable_view()), heed::Error);
}

}  // namespace
