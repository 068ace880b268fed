// Gradients when f32 cannot hold the numbers of one head. Another unit recomputes that head, and no other
// head is affected.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "attention_support.hpp"
#include "compare_gradients.hpp"
#include "each_target.hpp"
#include "head_out_of_range.hpp"
#include "heed/attention/part.hpp"
#include "naive_backward.hpp"

namespace {

using heed::AttentionBackwardInputs;
using heed::AttentionGradients;
using heed::AttentionOptions;
using heed::DType;
using heed::GradientRequest;
using heed::Tensor;
using heed::TensorView;
using heed::test::HeadOutOfRange;
using heed::test::normal_tensor;
using heed::test::same_bits;

TensorView of_head(const Tensor& tensor, std::int64_t batch, std::int64_t head, std::int64_t heads) {
  return tensor.view().narrow(0, batch, 1).narrow(1, head, heads);
}

// Calls `check` on every target, for every dtype, without a bias and with one that all heads share.
template <class Check>
void on_every_target(Check check) {
  const heed::test::EachTarget targets;
  const Tensor bias = normal_tensor({20, 800}, 5, DType::f32);
  for (const std::string& target : targets.available())
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
      for (const bool has_bias : {false, true}) {
        SCOPED_TRACE(::testing::Message() << target << ", " << name_of(dtype) << (has_bias ? ", bias" : ""));
        heed::set_target(target);
        check(dtype, has_bias ? &bias : nullptr);
      }
}

AttentionGradients gradients_of(const HeadOutOfRange& call, const Tensor* bias) {
  AttentionOptions options = call.options;
  if (bias != nullptr) options.bias = *bias;
  return heed::attention_backward(call.inputs(), options, {.bias = bias != nullptr});
}

TEST(HeadsOutOfRange, ChangeNoOtherHeadsBits) {
  on_every_target([](DType dtype, const Tensor* bias) {
    const AttentionGradients whole = gradients_of(HeadOutOfRange(dtype), bias);
    const AttentionGradients without = gradients_of(HeadOutOfRange(dtype, false), bias);
    EXPECT_GT(whole.recomputed_rows, 0);
    EXPECT_EQ(without.recomputed_rows, 0);
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t kv = 0; kv < 2; ++kv) {
        if (b == HeadOutOfRange::kBatch && kv == HeadOutOfRange::kKvHead) continue;
        SCOPED_TRACE(::testing::Message() << "entry " << b << ", key head " << kv);
        EXPECT_TRUE(same_bits(of_head(whole.query, b, 2 * kv, 2), of_head(without.query, b, 2 * kv, 2)));
        EXPECT_TRUE(same_bits(of_head(whole.key, b, kv, 1), of_head(without.key, b, kv, 1)));
        EXPECT_TRUE(same_bits(of_head(whole.value, b, kv, 1), of_head(without.value, b, kv, 1)));
      }
  });
}

TEST(HeadsOutOfRange, HaveInAPartTheBitsOfTheWhole) {
  on_every_target([](DType dtype, const Tensor* bias) {
    const HeadOutOfRange call(dtype);
    const AttentionGradients whole = gradients_of(call, bias);
    AttentionOptions options = call.options;
    if (bias != nullptr) options.bias = *bias;
    const std::vector<heed::PositionRange> rows{{0, 20}};
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t kv = 0; kv < 2; ++kv) {
        SCOPED_TRACE(::testing::Message() << "entry " << b << ", key head " << kv);
        const auto rows_of = [&](const Tensor& x) { return of_head(x, b, 2 * kv, 2); };
        const auto keys_of = [&](const Tensor& x) { return of_head(x, b, kv, 1); };
        Tensor query({1, 2, 20, 16}, dtype), key({1, 1, 800, 16}, dtype), value({1, 1, 800, 16}, dtype);
        (void)heed::attention_backward_part_into(
            {rows_of(call.query), keys_of(call.key), keys_of(call.value), rows_of(call.forward.output),
             rows_of(call.forward.lse), rows_of(call.grad_output)},
            options, {2, 4, 20, b, 2 * kv, rows},
            {query.mutable_view(), key.mutable_view(), value.mutable_view()});
        EXPECT_TRUE(same_bits(query, rows_of(whole.query)));
        EXPECT_TRUE(same_bits(key, keys_of(whole.key)));
        EXPECT_TRUE(same_bits(value, keys_of(whole.value)));
      }
  });
}

// Expects infinity where f32 overflows, and else the tolerance of about 20 terms near 1, or near the large
// one.
void expect_near(const char* name, const Tensor& got, const heed::test::Cube& expected) {
  ASSERT_EQ(static_cast<std::size_t>(got.count()), expected.values.size());
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    const auto x = static_cast<heed::test::Real>(got.values<float>()[i]);
    const heed::test::Real exact = expected.values[i];
    EXPECT_TRUE(std::abs(x - exact) <= 1e-5 * std::max<heed::test::Real>(1, std::abs(exact)))
        << name << ", element " << i << ": " << x << ", not " << exact;
  }
}

// A row whose gradient f32 cannot hold, in the second of three heads that share a bias, compared with the
// definitions. The kernel has already started its sums with that head, and the reference must add it only
// once.
TEST(HeadsOutOfRange, CountOnceInWhatHeadsShare) {
  const heed::test::EachTarget targets;
  for (const std::string& target : targets.available()) {
    SCOPED_TRACE(target);
    heed::set_target(target);
    const Tensor query = normal_tensor({1, 3, 20, 8}, 1, DType::f32),
                 key = normal_tensor({1, 3, 60, 8}, 2, DType::f32),
                 bias = normal_tensor({20, 60}, 3, DType::f32), sinks = normal_tensor({3}, 4, DType::f32);
    Tensor grad = normal_tensor({1, 3, 20, 8}, 5, DType::f32);
    grad.at<float>(0, 1, 7, 0) = 1e30F;
    AttentionOptions options{.bias = bias, .sinks = sinks, .need = heed::Need::lse};
    const auto forward = heed::attention(query, key, key, options);
    const AttentionBackwardInputs inputs{query, key, key, forward.output, forward.lse, grad};
    const AttentionGradients got = heed::attention_backward(inputs, options, {.bias = true, .sinks = true});
    EXPECT_EQ(got.recomputed_rows, 1);
    const heed::test::NaiveGradients naive =
        heed::test::naive_backward(inputs, options, heed::test::naive_attention(query, key, key, options));
    expect_near("dBias", got.bias, heed::test::summed_to(naive.scores, {1, 1, 20, 60}));
    expect_near("dSinks", got.sinks, heed::test::summed_to(naive.sinks, {1, 3, 1, 1}));
    expect_near("dQ", got.query, naive.query);
    expect_near("dK", got.key, naive.key);
    expect_near("dV", got.value, naive.value);
  }
}

}  // namespace
