// The most attended keys of the fused kernel, compared with a sort: by decreasing weight, then by increasing
// key.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "attention_support.hpp"
#include "path_watch.hpp"
#include "processor.hpp"
#include "support.hpp"

namespace {

using heed::AttentionOptions;
using heed::AttentionResult;
using heed::Kernel;
using heed::Tensor;

constexpr std::int64_t kKeys = 700;  // several KV blocks
constexpr std::int64_t kDim = 16;
constexpr std::int64_t kOffset = 300;

// Only the first of kDim elements is not 0, so a score is a product of two numbers.
Tensor column_of(const std::vector<float>& values, heed::DType dtype) {
  Tensor tensor({1, 1, static_cast<std::int64_t>(values.size()), kDim}, heed::DType::f32);
  for (std::size_t i = 0; i < values.size(); ++i)
    tensor.values<float>()[i * static_cast<std::size_t>(kDim)] = values[i];
  return Tensor::copy_of(tensor, dtype);
}

// The nearest numbers of eight significant bits, which bf16 holds.
void round_to_bf16(std::vector<float>& values) {
  for (float& x : values) {
    int exponent;
    const float part = std::frexp(x, &exponent);
    x = std::ldexp(std::nearbyint(part * 256), exponent - 8);
  }
}

// Neighbouring rows have different orders, and some have none.
std::vector<float> queries_of(std::int64_t rows) {
  std::vector<float> queries;
  for (std::int64_t i = 0; i < rows; ++i) {
    const float factors[] = {1.0f, -1.0f, 0.5f, 0.0f, -0.25f};
    queries.push_back(factors[i % 5]);
  }
  return queries;
}

struct Keys {
  const char* name;
  std::vector<float> values;
};

// No weight underflows to 0, because no score is that far below the largest of its row.
std::vector<Keys> kinds_of_keys() {
  std::vector<float> rising(kKeys);
  for (std::size_t j = 0; j < rising.size(); ++j) rising[j] = static_cast<float>(j) / 10 - 35;  // shifts grow
  std::vector<float> shuffled = rising;
  std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937_64(3));
  std::vector<float> few = shuffled;
  for (float& x : few) x = std::round(x / 7);  // eleven different values
  std::vector<float> gently = rising;          // no shift grows, but each key enters the lists
  for (float& x : gently) x /= 10;
  return {{"shuffled", shuffled}, {"of few values", few}, {"rising", rising}, {"gently rising", gently}};
}

enum class Masks { none, causal, window, lengths };

bool is_allowed(Masks masks, std::int64_t i, std::int64_t j) {
  const std::int64_t position = i + kOffset;
  if (masks == Masks::causal) return j <= position;
  if (masks == Masks::window) return j >= position - 60 && j <= position + 3;
  return masks != Masks::lengths || j < 333;
}

AttentionOptions options_of(Masks masks, std::int64_t k, const Tensor& lengths) {
  AttentionOptions options{.scale = 1.0, .top_k = k, .kernel = Kernel::fused};
  if (masks == Masks::causal) options.causal = true;
  if (masks == Masks::window) options.window = {60, 3};
  if (masks == Masks::causal || masks == Masks::window) options.query_offset = kOffset;
  if (masks == Masks::lengths) options.kv_lengths = lengths;
  return options;
}

void expect_sorted(const AttentionResult& result, const std::vector<float>& queries,
                   const std::vector<float>& keys, Masks masks, std::int64_t top_k) {
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const auto score = [&](std::int64_t j) {
      return static_cast<double>(queries[i]) * static_cast<double>(keys[static_cast<std::size_t>(j)]);
    };
    std::vector<std::int64_t> allowed;
    for (std::int64_t j = 0; j < kKeys; ++j)
      if (is_allowed(masks, static_cast<std::int64_t>(i), j)) allowed.push_back(j);
    std::stable_sort(allowed.begin(), allowed.end(),
                     [&](std::int64_t a, std::int64_t b) { return score(a) > score(b); });
    double sum = 0;
    for (const std::int64_t j : allowed) sum += std::exp(score(j) - score(allowed[0]));
    for (std::int64_t n = 0; n < top_k; ++n) {
      const auto at = static_cast<std::size_t>(static_cast<std::int64_t>(i) * top_k + n);
      const bool there = n < static_cast<std::int64_t>(allowed.size());
      const std::int64_t key = there ? allowed[static_cast<std::size_t>(n)] : -1;
      ASSERT_EQ(result.top_k_index.values<std::int64_t>()[at], key) << "row " << i << ", entry " << n;
      const double weight = there ? std::exp(score(key) - score(allowed[0])) / sum : 0.0;
      // exp2 errs by 2 ulp, a score of up to 50 (in log 2) by three roundings, and sums of equal signs by
      // less.
      ASSERT_TRUE(std::abs(static_cast<double>(result.top_k_weight.values<float>()[at]) - weight) <=
                  3e-5 * weight)
          << "row " << i << ", entry " << n;
    }
  }
}

class FusedTopK : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string reason = heed::test::why_not_fused();
    if (!reason.empty()) GTEST_SKIP() << reason;
  }

  // Tries rows that fill no group, rows that fill several, and few enough rows to read keys in place. If
  // HEED_TEST_SHARE skips calls, a slow emulation leaves out the many. In bf16, lists of one length are
  // enough.
  void expect_sorted_lists(const std::vector<std::int64_t>& top_ks) const {
    std::vector<std::int64_t> numbers_of_rows{3, 45};
    if (!heed::test::is_emulated() || heed::test::makes_all_calls()) numbers_of_rows.push_back(203);
    for (const heed::DType dtype : {heed::DType::f32, heed::DType::bf16}) {
      const std::span<const std::int64_t> tried(top_ks.data(),
                                                dtype == heed::DType::bf16 ? 1 : top_ks.size());
      for (Keys keys : kinds_of_keys()) {
        if (dtype == heed::DType::bf16) round_to_bf16(keys.values);
        for (const std::int64_t rows : numbers_of_rows)
          for (const Masks masks : {Masks::none, Masks::causal, Masks::window, Masks::lengths})
            for (const std::int64_t k : tried) {
              SCOPED_TRACE(::testing::Message()
                           << heed::name_of(dtype) << " keys " << keys.name << ", " << rows << " rows, masks "
                           << static_cast<int>(masks) << ", top " << k);
              expect_sorted_lists(keys.values, dtype, rows, masks, k);
              if (HasFatalFailure()) return;
            }
      }
    }
  }

  void expect_sorted_lists(const std::vector<float>& keys, heed::DType dtype, std::int64_t rows, Masks masks,
                           std::int64_t k) const {
    const std::vector<float> queries = queries_of(rows);
    const Tensor key = column_of(keys, dtype);
    heed::test::PathWatch paths;
    const AttentionResult result =
        heed::attention(column_of(queries, dtype), key, key, options_of(masks, k, lengths_));
    ASSERT_FALSE(paths.fell_back_at_all());
    expect_sorted(result, queries, keys, masks, k);
  }

  Tensor lengths_ = Tensor::from<std::int32_t>({333}, {1});
};

TEST_F(FusedTopK, ShortListsAreSortedWithEqualWeightsByTheLowerKey) { expect_sorted_lists({1, 4, 8}); }
TEST_F(FusedTopK, LongListsAreSortedWithEqualWeightsByTheLowerKey) { expect_sorted_lists({9, 16, 33}); }
TEST_F(FusedTopK, ListsLongerThanAPanelOrThanTheKeysAreSorted) { expect_sorted_lists({49, 340, 800}); }

// Lists are made of weights that the output is made of, too; with dropout it reads them where lists do.
TEST_F(FusedTopK, ListsChangeNoBitOfTheOutput) {
  for (const heed::DType dtype : {heed::DType::f32, heed::DType::bf16, heed::DType::f16})
    for (const std::int64_t rows : {3, 16, 203})
      for (const double dropout : {0.0, 0.3})
        for (const bool causal : {false, true}) {
          SCOPED_TRACE(::testing::Message() << heed::name_of(dtype) << ", " << rows << " rows, dropout "
                                            << dropout << ", causal " << causal);
          const auto random = [&](std::int64_t length, std::uint64_t seed) {
            return heed::test::normal_tensor({1, 2, length, 32}, seed, dtype);
          };
          const Tensor query = random(rows, 1), key = random(kKeys, 2), value = random(kKeys, 3);
          AttentionOptions options{.kernel = Kernel::fused};
          options.dropout = {dropout, 5};
          options.causal = causal;
          options.query_offset = kOffset;
          const AttentionResult alone = heed::attention(query, key, value, options);
          options.top_k = 4;
          EXPECT_TRUE(
              heed::test::same_bits(alone.output, heed::attention(query, key, value, options).output));
        }
}

}  // namespace
