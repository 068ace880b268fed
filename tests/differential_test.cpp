// Differential attention beside its formulas in f64: outputs, signed weights and sums, gradients, caches.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "attention_support.hpp"
#include "heed/attention/differential.hpp"
#include "random_call.hpp"
#include "support.hpp"

namespace {

using heed::AttentionOptions;
using heed::CacheFormat;
using heed::DifferentialResult;
using heed::Dims;
using heed::DType;
using heed::KvCache;
using heed::KvCacheOptions;
using heed::Need;
using heed::Tensor;
using heed::TensorView;
using heed::test::Draw;
using heed::test::largest_difference;
using heed::test::normal_tensor;
using heed::test::same_bits;

constexpr std::uint64_t kSeed = 20261128;

struct Call {
  std::int64_t batch, heads, kv_heads, queries, keys, width, values;
  bool own_keys, of_rows, causal;
  Tensor query, key, value, lambda;
};

Call draw_call(std::uint64_t index, DType dtype) {
  Draw draw(kSeed, index);
  Call c{};
  c.batch = draw.between(1, 2);
  c.kv_heads = draw.between(1, 2);
  c.heads = c.kv_heads * draw.between(1, 3);
  c.queries = draw.pick<std::int64_t>({1, 2, 5, 17});
  c.keys = c.queries + draw.pick<std::int64_t>({0, 3, 30});
  c.width = draw.pick<std::int64_t>({3, 8, 16});
  c.values = draw.pick<std::int64_t>({2, 16, 32});
  c.own_keys = draw.chance(0.5);
  c.of_rows = draw.chance(0.5);
  c.causal = draw.chance(0.5);
  const std::uint64_t seed = kSeed + 10 * index;
  c.query = normal_tensor({c.batch, 2 * c.heads, c.queries, c.width}, seed, dtype);
  c.key =
      normal_tensor({c.batch, c.own_keys ? 2 * c.kv_heads : c.kv_heads, c.keys, c.width}, seed + 1, dtype);
  c.value = normal_tensor({c.batch, c.kv_heads, c.keys, c.values}, seed + 2, dtype);
  c.lambda = normal_tensor(c.of_rows ? Dims{c.batch, c.heads, c.queries} : Dims{c.heads}, seed + 3,
                           dtype == DType::f64 ? DType::f64 : DType::f32);
  return c;
}

std::string describe(const Call& c) {
  return "B " + std::to_string(c.batch) + " H " + std::to_string(c.heads) + " Hkv " +
         std::to_string(c.kv_heads) + " Lq " + std::to_string(c.queries) + " Lk " + std::to_string(c.keys) +
         " D " + std::to_string(c.width) + " Dv " + std::to_string(c.values) +
         (c.own_keys ? " own keys" : "") + (c.of_rows ? " rows" : "") + (c.causal ? " causal" : "");
}

// One head and row in f64: both softmaxes [2][Lk], from the definitions.
struct Row {
  std::vector<double> p[2];
};

class Formula {
 public:
  explicit Formula(const Call& call)
      : c(call),
        query(Tensor::copy_of(call.query, DType::f64)),
        key(Tensor::copy_of(call.key, DType::f64)),
        value(Tensor::copy_of(call.value, DType::f64)),
        lambda(Tensor::copy_of(call.lambda, DType::f64)) {}

  std::int64_t key_head(std::int64_t h, int half) const {
    const std::int64_t kv = h / (c.heads / c.kv_heads);
    return c.own_keys ? 2 * kv + half : kv;
  }
  double factor(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return c.of_rows ? lambda.at<double>(b, h, i) : lambda.at<double>(h);
  }
  bool sees(std::int64_t i, std::int64_t j) const { return !c.causal || j <= i + c.keys - c.queries; }

  Row row(std::int64_t b, std::int64_t h, std::int64_t i) const {
    Row row;
    for (const int half : {0, 1}) {
      row.p[half].assign(static_cast<std::size_t>(c.keys), 0);
      double sum = 0;
      for (std::int64_t j = 0; j < c.keys; ++j) {
        double score = 0;
        for (std::int64_t d = 0; d < c.width; ++d)
          score += query.at<double>(b, 2 * h + half, i, d) * key.at<double>(b, key_head(h, half), j, d);
        if (sees(i, j))
          sum += row.p[half][static_cast<std::size_t>(j)] = std::exp(score / std::sqrt(c.width));
      }
      for (double& p : row.p[half]) p /= sum;
    }
    return row;
  }

  const Call& c;
  Tensor query, key, value, lambda;
};

struct Expected {
  Tensor output, weights, received, map;
};

Expected expected_of(const Call& c) {
  const Formula f(c);
  Expected e{Tensor({c.batch, c.heads, c.queries, c.values}, DType::f64),
             Tensor({c.batch, c.heads, c.queries, c.keys}, DType::f64),
             Tensor({c.batch, c.heads, c.keys}, DType::f64), Tensor({c.batch, c.heads, 2, 3}, DType::f64)};
  for (std::int64_t b = 0; b < c.batch; ++b)
    for (std::int64_t h = 0; h < c.heads; ++h)
      for (std::int64_t i = 0; i < c.queries; ++i) {
        const Row row = f.row(b, h, i);
        for (std::int64_t j = 0; j < c.keys; ++j) {
          const auto at = static_cast<std::size_t>(j);
          const double a = row.p[0][at] - f.factor(b, h, i) * row.p[1][at];
          e.weights.at<double>(b, h, i, j) = a;
          e.received.at<double>(b, h, j) += a;
          e.map.at<double>(b, h, i * 2 / c.queries, j * 3 / c.keys) += a;
          for (std::int64_t v = 0; v < c.values; ++v)
            e.output.at<double>(b, h, i, v) += a * f.value.at<double>(b, h / (c.heads / c.kv_heads), j, v);
        }
      }
  return e;
}

AttentionOptions options_of(const Call& c) {
  AttentionOptions options{.causal = c.causal, .align = heed::Align::bottom_right};
  options.need = Need::weights | Need::entropy;
  options.top_k = 1;
  if (c.of_rows) return options;
  options.need |= Need::received;
  if (c.queries > 1 && c.keys > 2) options.map = {2, 3};
  return options;
}

// Sums of at most 47 weights and values around 1, with factors around 1: some 30 roundings of the dtype.
double tolerance_of(DType dtype) {
  return dtype == DType::f64 ? 1e-12 : dtype == DType::f32 ? 2e-5 : dtype == DType::bf16 ? 0.06 : 0.008;
}

TEST(DifferentialAttention, HasSignedResultsOfTheFormula) {
  for (std::uint64_t index = 0; index < heed::test::share_of(500); ++index) {
    const DType dtype = index % 4 == 0   ? DType::f64
                        : index % 4 == 1 ? DType::f32
                        : index % 4 == 2 ? DType::bf16
                                         : DType::f16;
    const Call c = draw_call(index, dtype);
    SCOPED_TRACE(describe(c));
    const AttentionOptions options = options_of(c);
    const DifferentialResult result =
        heed::differential_attention(c.query, c.key, c.value, c.lambda, options);
    const Expected e = expected_of(c);
    const double tolerance = tolerance_of(dtype),
                 summaries = tolerance_of(dtype == DType::f64 ? dtype : DType::f32);
    ASSERT_EQ(result.output.dtype(), dtype);
    ASSERT_LE(largest_difference(result.output, e.output), tolerance);
    ASSERT_LE(largest_difference(result.weights, e.weights), summaries);
    if (!c.of_rows) {
      ASSERT_LE(largest_difference(result.received, e.received), summaries);
    }
    if (options.map.rows > 0) {
      ASSERT_LE(largest_difference(result.map, e.map), summaries);
    }
    EXPECT_EQ(result.first.entropy.shape(), (Dims{c.batch, c.heads, c.queries}));
    EXPECT_EQ(result.second.top_k_index.shape(), (Dims{c.batch, c.heads, c.queries, 1}));
    AttentionOptions one = options;
    one.threads = 1;
    const DifferentialResult other = heed::differential_attention(c.query, c.key, c.value, c.lambda, one);
    ASSERT_TRUE(same_bits(other.output, result.output));
    ASSERT_TRUE(same_bits(other.weights, result.weights));
  }
}

// Gradients of sum(output * weight) in f64, from the formula a = p - lambda p' and the softmax's derivative.
TEST(DifferentialAttention, HasTheGradientsOfTheFormula) {
  for (std::uint64_t index = 0; index < heed::test::share_of(300); ++index) {
    const DType dtype = index % 2 == 0 ? DType::f64 : DType::f32;
    const Call c = draw_call(index, dtype);
    SCOPED_TRACE(describe(c));
    const Formula f(c);
    const Tensor by_output = normal_tensor({c.batch, c.heads, c.queries, c.values}, kSeed + index, dtype);
    const Tensor by = Tensor::copy_of(by_output, DType::f64);
    Tensor dq(c.query.shape(), DType::f64), dk(c.key.shape(), DType::f64), dv(c.value.shape(), DType::f64),
        dl(c.lambda.shape(), DType::f64);
    const double scale = 1 / std::sqrt(c.width);
    for (std::int64_t b = 0; b < c.batch; ++b)
      for (std::int64_t h = 0; h < c.heads; ++h)
        for (std::int64_t i = 0; i < c.queries; ++i) {
          const Row row = f.row(b, h, i);
          const std::int64_t kv = h / (c.heads / c.kv_heads);
          for (const int half : {0, 1}) {
            const double sign = half == 0 ? 1 : -f.factor(b, h, i);
            std::vector<double> by_weight(static_cast<std::size_t>(c.keys), 0);
            double mean = 0;
            for (std::int64_t j = 0; j < c.keys; ++j) {
              const auto at = static_cast<std::size_t>(j);
              for (std::int64_t v = 0; v < c.values; ++v) {
                const double by_element = by.at<double>(b, h, i, v);
                by_weight[at] += by_element * f.value.at<double>(b, kv, j, v);
                dv.at<double>(b, kv, j, v) += sign * row.p[half][at] * by_element;
              }
              mean += row.p[half][at] * by_weight[at];
            }
            if (half == 1) (c.of_rows ? dl.at<double>(b, h, i) : dl.at<double>(h)) -= mean;
            for (std::int64_t j = 0; j < c.keys; ++j) {
              const auto at = static_cast<std::size_t>(j);
              const double by_score = sign * row.p[half][at] * (by_weight[at] - mean) * scale;
              for (std::int64_t d = 0; d < c.width; ++d) {
                dq.at<double>(b, 2 * h + half, i, d) +=
                    by_score * f.key.at<double>(b, f.key_head(h, half), j, d);
                dk.at<double>(b, f.key_head(h, half), j, d) +=
                    by_score * f.query.at<double>(b, 2 * h + half, i, d);
              }
            }
          }
        }
    const AttentionOptions options{.causal = c.causal, .align = heed::Align::bottom_right};
    const DifferentialResult result =
        heed::differential_attention(c.query, c.key, c.value, c.lambda, options);
    const heed::DifferentialGradients gradients =
        heed::differential_attention_backward(c.query, c.key, c.value, c.lambda, result, by_output, options);
    // Sums over 51 rows of two heads, in f32 some hundred roundings.
    const double tolerance = dtype == DType::f64 ? 1e-11 : 2e-4;
    ASSERT_LE(largest_difference(gradients.query, dq), tolerance);
    ASSERT_LE(largest_difference(gradients.key, dk), tolerance);
    ASSERT_LE(largest_difference(gradients.value, dv), tolerance);
    ASSERT_LE(largest_difference(gradients.lambda, dl), tolerance);
    ASSERT_EQ(gradients.lambda.dtype(), c.lambda.dtype());
  }
}

// A key of a cache is [k, k'], or both halves read the same.
TEST(DifferentialAttention, DecodesOverCaches) {
  for (std::uint64_t index = 0; index < heed::test::share_of(200); ++index) {
    const Call c = draw_call(index, DType::f32);
    SCOPED_TRACE(describe(c));
    KvCacheOptions options{
        .sequences = c.batch,
        .kv_heads = c.kv_heads,
        .head_dim = c.own_keys ? 2 * c.width : c.width,
        .value_dim = c.values,
        .layout = index % 2 == 0 ? heed::CacheLayout::paged : heed::CacheLayout::contiguous,
        .capacity = 200};
    KvCache cache(options);
    Tensor rows({c.batch, c.kv_heads, c.keys, options.head_dim});
    for (std::int64_t h = 0; h < c.kv_heads; ++h)
      for (const std::int64_t half : {0, 1})
        if (half == 0 || c.own_keys)
          heed::copy(c.key.view().narrow(1, c.own_keys ? 2 * h + half : h, 1),
                     rows.mutable_view().narrow(1, h, 1).narrow(3, half * c.width, c.width));
    cache.append(rows, c.value);
    AttentionOptions call = options_of(c);
    const DifferentialResult result = heed::differential_attention(c.query, cache, c.lambda, call);
    const Expected e = expected_of(c);
    ASSERT_LE(largest_difference(result.output, e.output), tolerance_of(DType::f32));
    ASSERT_LE(largest_difference(result.weights, e.weights), tolerance_of(DType::f32));
    if (!c.of_rows) {
      ASSERT_LE(largest_difference(result.received, e.received), tolerance_of(DType::f32));
    }
  }
}

TEST(DifferentialAttention, HasAPlanOfBothSoftmaxes) {
  const Tensor query({1, 4, 300, 8}, DType::bf16), key({1, 4, 300, 8}, DType::bf16),
      value({1, 2, 300, 6}, DType::bf16), lambda({2});
  AttentionOptions options{.causal = true, .need = Need::lse};
  const heed::AttentionPlan plan = heed::plan_differential_attention(query, key, value, lambda, options);
  EXPECT_EQ(plan.multiply_adds, 4.0 * (300 * 301 / 2) * (8 + 6));
  // f32 outputs and lse of four halves; bf16 outputs of two heads.
  EXPECT_EQ(plan.result_bytes, 300U * (4 * 4 * (6 + 1) + 2 * 2 * 6));
  options.output_dtype = DType::f32;
  const Tensor half({1, 2, 300, 8}, DType::bf16);
  const heed::AttentionPlan one = heed::plan_attention(half, half, value, options);
  ASSERT_EQ(plan.passes.size(), one.passes.size());
  EXPECT_EQ(plan.passes[0].unit, one.passes[0].unit);
  EXPECT_EQ(plan.passes[0].tasks, one.passes[0].tasks);
  EXPECT_EQ(heed::test::message_of(
                [&] { (void)heed::plan_differential_attention(query, key, value, Tensor({3}), options); }),
            "lambda has dtype f32 and shape [3]; f64 or f32 of [2] or [1, 2, 300] is expected");
}

TEST(DifferentialAttention, ABatchWithoutRowsMayBeOfAnySize) {
  constexpr std::int64_t kMany = std::int64_t{1} << 40;
  const Tensor query({kMany, 2, 0, 8}), key({kMany, 2, 0, 8}), value({kMany, 1, 0, 8}), lambda({1});
  const DifferentialResult result =
      heed::differential_attention(query, key, value, lambda, {.need = Need::weights | Need::received});
  EXPECT_EQ(result.received.shape(), (Dims{kMany, 1, 0}));
  const auto gradients =
      heed::differential_attention_backward(query, key, value, lambda, result, Tensor({kMany, 1, 0, 8}));
  EXPECT_EQ(gradients.query.shape(), query.shape());
  EXPECT_TRUE(same_bits(gradients.lambda, Tensor({1})));
}

TEST(DifferentialAttention, SaysWhatIsWrongInOneSentence) {
  const Tensor query({1, 4, 3, 8}), key({1, 4, 5, 8}), value({1, 2, 5, 6}), lambda({2}), rows({1, 2, 3});
  const auto message = [&](const Tensor& q, const Tensor& k, const Tensor& l,
                           const AttentionOptions& options) {
    return heed::test::message_of([&] { (void)heed::differential_attention(q, k, value, l, options); });
  };
  EXPECT_EQ(message(query, key, lambda, {}), "no error");
  EXPECT_EQ(message(Tensor({1, 3, 3, 8}), key, lambda, {}),
            "query has shape [1, 3, 3, 8]; [B, 2 H, Lq, D] with two halves of each head is expected");
  EXPECT_EQ(message(query, Tensor({1, 3, 5, 8}), lambda, {}),
            "key has shape [1, 3, 5, 8] and value [1, 2, 5, 6]; [B, 2 Hkv, Lk, D] or [B, Hkv, Lk, D], and "
            "[B, Hkv, Lk, Dv], are expected");
  EXPECT_EQ(message(query, key, Tensor({3}), {}),
            "lambda has dtype f32 and shape [3]; f64 or f32 of [2] or [1, 2, 3] is expected");
  EXPECT_EQ(message(query, key, rows, {.need = Need::received}),
            "lambda has shape [1, 2, 3]; [2] is expected with received, received_last and map, which sum "
            "over rows");
}

TEST(DifferentialAttention, RefusesResultsOfAnotherCall) {
  const Tensor query({1, 4, 3, 8}), key({1, 4, 5, 8}), value({1, 2, 5, 6}), lambda({2});
  const auto message = [&](const DifferentialResult& result, const Tensor& grad_output) {
    return heed::test::message_of(
        [&] { (void)heed::differential_attention_backward(query, key, value, lambda, result, grad_output); });
  };
  DifferentialResult result = heed::differential_attention(query, key, value, lambda);
  EXPECT_EQ(message(result, Tensor({1, 2, 3, 6})), "no error");
  EXPECT_EQ(message({}, Tensor()), "grad_output has shape [0]; [1, 2, 3, 6] is expected");
  result.second.output = Tensor({1, 2, 1, 6});
  EXPECT_EQ(message(result, Tensor({1, 2, 3, 6})),
            "result.second.output has shape [1, 2, 1, 6]; [1, 2, 3, 6] is expected");
}

}  // namespace
