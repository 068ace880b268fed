// Received masses, which threads compute from the weights of their last task. They are compared with f64 on
// every target, with shifts that change, rows that are recomputed, and several key spans.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "attention_support.hpp"
#include "each_target.hpp"
#include "heed/attention/attention.hpp"
#include "heed/attention/part.hpp"
#include "path_watch.hpp"

namespace {

using heed::AttentionOptions;
using heed::AttentionResult;
using heed::DType;
using heed::Need;
using heed::Tensor;
using heed::test::normal_tensor;
using heed::test::Path;
using heed::test::PathWatch;
using heed::test::same_bits;

// [1, heads, rows, width]
struct Inputs {
  Tensor query, key, value;
};

Inputs inputs(std::int64_t heads, std::int64_t kv_heads, std::int64_t rows, std::int64_t keys,
              std::int64_t width) {
  return {normal_tensor({1, heads, rows, width}, 1, DType::f32),
          normal_tensor({1, kv_heads, keys, width}, 2, DType::f32),
          normal_tensor({1, kv_heads, keys, width}, 3, DType::f32)};
}

// From the definition: causal, with key heads shared. A row with a NaN score gives NaN to all keys that it
// sees.
std::vector<double> received_in_f64(const Inputs& in, bool causal) {
  const std::int64_t heads = in.query.size(1), rows = in.query.size(2), width = in.query.size(3);
  const std::int64_t keys = in.key.size(2), group = heads / in.key.size(1);
  const float *query = in.query.values<float>().data(), *key = in.key.values<float>().data();
  std::vector<double> received(static_cast<std::size_t>(heads * keys));
  std::vector<double> scores(static_cast<std::size_t>(keys));
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t seen = causal ? std::min(keys, i + 1) : keys;
      double most = -std::numeric_limits<double>::infinity(), sum = 0;
      for (std::int64_t j = 0; j < seen; ++j) {
        double score = 0;
        for (std::int64_t d = 0; d < width; ++d)
          score += static_cast<double>(query[(h * rows + i) * width + d]) *
                   static_cast<double>(key[(h / group * keys + j) * width + d]);
        scores[static_cast<std::size_t>(j)] = score / std::sqrt(static_cast<double>(width));
        most = std::max(most, scores[static_cast<std::size_t>(j)]);
      }
      for (std::int64_t j = 0; j < seen; ++j) {
        scores[static_cast<std::size_t>(j)] = std::exp(scores[static_cast<std::size_t>(j)] - most);
        sum += scores[static_cast<std::size_t>(j)];
      }
      for (std::int64_t j = 0; j < seen; ++j)
        received[static_cast<std::size_t>(h * keys + j)] += scores[static_cast<std::size_t>(j)] / sum;
    }
  return received;
}

// Weights have relative errors of about 2^-24 times twice the largest score in units of log 2, `score`. Sums
// of non-negative terms have no larger ones. 2^-20 is sixteen roundings.
void expect_near(const Tensor& received, const std::vector<double>& expected, double score) {
  for (std::size_t k = 0; k < expected.size(); ++k) {
    const double x = static_cast<double>(received.values<float>()[k]);
    if (std::isnan(expected[k]) && std::isnan(x)) continue;
    ASSERT_TRUE(std::abs(x - expected[k]) <= (0x1p-20 + 0x1p-23 * score) * expected[k] + 0x1p-40)
        << "key " << k << ": " << x << ", expected " << expected[k];
  }
}

AttentionResult attend(const Inputs& in, AttentionOptions options) {
  options.kernel = heed::Kernel::fused;
  options.need |= Need::received;
  return heed::attention(in.query, in.key, in.value, options);
}

// Targets that multiply f32 by matrix tiles need the second pass; the others do not.
template <class Check>
void on_each_target(Check check) {
  const heed::test::EachTarget targets;
  for (const std::string& target : targets.available()) {
    SCOPED_TRACE(target);
    heed::set_target(target);
    PathWatch paths;
    paths.start_call();
    check();
    const bool multiplies_by_tiles = target.starts_with("amx_f32");
    EXPECT_EQ(paths.taken_now(Path::received_from_kept) > 0, !multiplies_by_tiles);
    EXPECT_EQ(paths.taken_now(Path::weights_pass) > 0, multiplies_by_tiles);
  }
}

TEST(Received, IsTheSumOfTheDefinitionsWeights) {
  const Inputs in = inputs(4, 2, 401, 390, 24);
  const std::vector<double> all = received_in_f64(in, false), causal = received_in_f64(in, true);
  on_each_target([&] { expect_near(attend(in, {}).received, all, 10); });
  on_each_target([&] { expect_near(attend(in, {.causal = true, .top_k = 3}).received, causal, 10); });
}

// The largest score of each row is its last, so shifts change with every KV block.
TEST(Received, FollowsShiftsThatMove) {
  Inputs in = inputs(1, 1, 400, 800, 4);
  for (float& x : in.query.values<float>()) x = std::abs(x) + 1;
  for (std::size_t n = 0; n < in.key.values<float>().size(); ++n)
    in.key.values<float>()[n] = 0.05F * static_cast<float>(n / 4) + 0.1F * in.key.values<float>()[n];
  const std::vector<double> expected = received_in_f64(in, true);
  on_each_target([&] { expect_near(attend(in, {.causal = true}).received, expected, 600); });
}

TEST(Received, AddsSpansOfKeys) {
  Inputs in = inputs(1, 1, 3100, 3300, 4);
  for (std::size_t n = 0; n < in.key.values<float>().size(); ++n)
    in.key.values<float>()[n] *= n / 4 < 1500 ? 1 : 9;  // the last span also has larger scores
  const std::vector<double> expected = received_in_f64(in, false);
  on_each_target([&] { expect_near(attend(in, {}).received, expected, 150); });
}

// Rows 7 and 250 have scores beyond f32. Row 300 contains a NaN, so its keys receive NaN. Key 391 contains a
// NaN, so all keys of the last rows, which see it, receive NaN.
TEST(Received, HasTheRowsThatAreComputedAgain) {
  Inputs in = inputs(2, 1, 400, 400, 8);
  const auto query = in.query.values<float>();
  for (std::size_t d = 0; d < 8; ++d) query[7 * 8 + d] *= 1e30F;
  for (std::size_t d = 0; d < 8; ++d) query[(400 + 250) * 8 + d] *= 1e30F;
  const std::vector<double> finite = received_in_f64(in, true);
  on_each_target([&] {
    const AttentionResult result = attend(in, {.causal = true});
    EXPECT_EQ(result.recomputed_rows, 2);
    expect_near(result.received, finite, 10);
  });
  query[300 * 8] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<double> of_query = received_in_f64(in, true);
  ASSERT_TRUE(std::isnan(of_query[300]) && !std::isnan(of_query[301]) && !std::isnan(of_query[400]));
  on_each_target([&] { expect_near(attend(in, {.causal = true}).received, of_query, 10); });
  query[300 * 8] = 0;
  in.key.values<float>()[391 * 8] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<double> of_key = received_in_f64(in, true);
  on_each_target([&] { expect_near(attend(in, {.causal = true}).received, of_key, 10); });
}

TEST(Received, HasTheSameBitsForEveryNumberOfThreads) {
  const Inputs in = inputs(3, 3, 1300, 1300, 16);
  const AttentionOptions options{.causal = true, .need = Need::lse | Need::entropy, .top_k = 4};
  on_each_target([&] {
    AttentionOptions one = options;
    one.threads = 1;
    const AttentionResult expected = attend(in, one);
    for (const int threads : {2, 3, 5, 8}) {
      AttentionOptions several = options;
      several.threads = threads;
      ASSERT_TRUE(same_bits(attend(in, several), expected)) << threads;
    }
  });
}

// The sum over the last rows needs the second pass. Over all rows it must equal the first pass.
TEST(Received, AgreesWithTheSecondPass) {
  const Inputs in = inputs(2, 1, 777, 500, 16);
  on_each_target([&] {
    const AttentionResult kept = attend(in, {.window = {300, 100}});
    PathWatch paths;
    paths.start_call();
    const AttentionResult second = attend(in, {.window = {300, 100}, .received_last = 777});
    EXPECT_EQ(paths.taken_now(Path::received_from_kept), 0);
    EXPECT_TRUE(same_bits(kept.output, second.output));
    for (std::size_t k = 0; k < kept.received.values<float>().size(); ++k) {
      const float x = kept.received.values<float>()[k], y = second.received_last.values<float>()[k];
      ASSERT_TRUE(std::abs(x - y) <= 0x1p-20F * y + 0x1p-40F) << k;  // as in expect_near, for the same scores
    }
    attend(in, {});  // counted by on_each_target
  });
}

TEST(Received, OfSomeHeadsIsThatOfTheWhole) {
  for (const std::int64_t length : {400, 3300}) {
    const Inputs in = inputs(4, 2, length, length, 4);
    const AttentionOptions options{.causal = true, .need = Need::received, .kernel = heed::Kernel::fused};
    const AttentionResult whole = heed::attention(in.query, in.key, in.value, options);
    const std::vector<heed::PositionRange> rows{{0, length}};
    const heed::CallPart part{.heads = 4, .query_length = length, .head_begin = 2, .rows = rows};
    Tensor output({1, 2, length, 4}), received({1, 2, length});
    heed::AttentionOutputs outputs;
    outputs.output = output;
    outputs.received = received;
    (void)heed::attention_part_into(in.query.view().narrow(1, 2, 2), in.key.view().narrow(1, 1, 1),
                                    in.value.view().narrow(1, 1, 1), options, part, outputs);
    EXPECT_TRUE(same_bits(received, whole.received.view().narrow(1, 2, 2))) << length;
    EXPECT_TRUE(same_bits(output, whole.output.view().narrow(1, 2, 2))) << length;
  }
}

}  // namespace
