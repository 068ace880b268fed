// Layouts of tensors: ranks, heads, strides, packed sequences, dtypes, sizes of 0, memory of the caller.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "attention_support.hpp"
#include "heed/attention/attention.hpp"

namespace {

using heed::attention;
using heed::attention_into;
using heed::AttentionOptions;
using heed::Dims;
using heed::DType;
using heed::MutableTensorView;
using heed::Need;
using heed::Tensor;
using heed::TensorView;
using heed::test::largest_difference;
using heed::test::normal_tensor;
using heed::test::same_bits;

constexpr Need kAll = Need::lse | Need::max_score | Need::entropy | Need::distance | Need::received |
                      Need::weights | Need::scores;

struct Call {
  Tensor query = normal_tensor({2, 4, 5, 8}, 1);
  Tensor key = normal_tensor({2, 2, 7, 8}, 2);
  Tensor value = normal_tensor({2, 2, 7, 3}, 3);
  AttentionOptions options{.causal = true,
                           .align = heed::Align::bottom_right,
                           .need = kAll,
                           .top_k = 3,
                           .received_last = 2,
                           .map = {2, 3},
                           .kernel = heed::Kernel::reference};
  heed::AttentionResult attend() const { return attention(query, key, value, options); }
};

TEST(AttentionShapes, ResultsHaveTheAxesOfTheInputs) {
  const Call call;
  const auto result = call.attend();
  EXPECT_EQ(result.output.shape(), (Dims{2, 4, 5, 3}));
  EXPECT_EQ(result.weights.shape(), (Dims{2, 4, 5, 7}));
  EXPECT_EQ(result.scores.shape(), (Dims{2, 4, 5, 7}));
  EXPECT_EQ(result.lse.shape(), (Dims{2, 4, 5}));
  EXPECT_EQ(result.received.shape(), (Dims{2, 4, 7}));
  EXPECT_EQ(result.received_last.shape(), (Dims{2, 4, 7}));
  EXPECT_EQ(result.top_k_index.shape(), (Dims{2, 4, 5, 3}));
  EXPECT_EQ(result.map.shape(), (Dims{2, 4, 2, 3}));
  EXPECT_EQ(result.kernel, heed::Kernel::reference);
  EXPECT_EQ(result.isa, "f64 reference");
  EXPECT_EQ(result.threads, 1);
}

TEST(AttentionShapes, InputsOfLowerRankGiveResultsWithoutTheAxesThatTheyLack) {
  const Call call;
  const auto whole = call.attend();
  const auto heads = attention(call.query.view().select(0, 1), call.key.view().select(0, 1),
                               call.value.view().select(0, 1), call.options);
  EXPECT_EQ(heads.lse.shape(), (Dims{4, 5}));
  EXPECT_TRUE(same_bits(heads.output, whole.output.view().select(0, 1)));
  EXPECT_TRUE(same_bits(heads.map, whole.map.view().select(0, 1)));
  const auto one =
      attention(call.query.view().select(0, 1).select(0, 3), call.key.view().select(0, 1).select(0, 1),
                call.value.view().select(0, 1).select(0, 1), call.options);
  EXPECT_EQ(one.lse.shape(), Dims{5});
  EXPECT_EQ(one.map.shape(), (Dims{2, 3}));
  EXPECT_TRUE(same_bits(one.top_k_weight, whole.top_k_weight.view().select(0, 1).select(0, 3)));
  EXPECT_TRUE(same_bits(one.received_last, whole.received_last.view().select(0, 1).select(0, 3)));
}

TEST(AttentionShapes, WhatIsNotAskedForIsEmpty) {
  const Call call;
  const auto result = attention(call.query, call.key, call.value);
  for (const Tensor* tensor :
       {&result.weights, &result.scores, &result.lse, &result.max_score, &result.entropy, &result.distance,
        &result.top_k_index, &result.top_k_weight, &result.received, &result.received_last, &result.map})
    EXPECT_EQ(tensor->shape(), Dims{0});
}

TEST(AttentionShapes, ABatchWithoutRowsMayBeOfAnySize) {
  const std::int64_t many = std::int64_t{1} << 40;
  const AttentionOptions options{.need = Need::lse | Need::entropy | Need::weights, .top_k = 2};
  for (const Dims& shape : {Dims{many, 1, 0, 8}, Dims{many, 0, 3, 8}})
    for (const DType dtype : {DType::f32, DType::f64}) {
      const Tensor empty(shape, dtype);
      EXPECT_EQ(attention(empty, empty, empty, options).output.shape(), shape);
    }
}

TEST(AttentionShapes, EverySizeButTheHeadDimensionMayBeZero) {
  const AttentionOptions options{.need = kAll, .top_k = 2, .received_last = 1, .map = {2, 2}};
  const auto shapes = [&](const Dims& q, const Dims& k, const Dims& v) {
    return attention(normal_tensor(q, 1), normal_tensor(k, 2), normal_tensor(v, 3), options);
  };
  EXPECT_EQ(shapes({0, 2, 3, 4}, {0, 2, 5, 4}, {0, 2, 5, 1}).output.shape(), (Dims{0, 2, 3, 1}));
  EXPECT_EQ(shapes({2, 0, 3, 4}, {2, 0, 5, 4}, {2, 0, 5, 1}).output.shape(), (Dims{2, 0, 3, 1}));
  EXPECT_EQ(shapes({2, 0, 3, 4}, {2, 3, 5, 4}, {2, 3, 5, 1}).output.shape(), (Dims{2, 0, 3, 1}));
  const auto no_value = shapes({3, 4}, {5, 4}, {5, 0});
  EXPECT_EQ(no_value.output.shape(), (Dims{3, 0}));
  EXPECT_TRUE(std::isfinite(no_value.lse.at<double>(2)));
  const auto no_query = shapes({0, 4}, {5, 4}, {5, 1});
  for (double x : no_query.received.values<double>()) EXPECT_EQ(x, 0);
  for (double x : no_query.map.values<double>()) EXPECT_EQ(x, 0);
  const auto no_key = shapes({3, 4}, {0, 4}, {0, 2});
  for (double x : no_key.output.values<double>()) EXPECT_EQ(x, 0);
  for (double x : no_key.lse.values<double>()) EXPECT_EQ(x, -std::numeric_limits<double>::infinity());
  for (std::int64_t j : no_key.top_k_index.values<std::int64_t>()) EXPECT_EQ(j, -1);
}

TEST(AttentionHeads, AQueryHeadReadsTheKeyHeadOfItsGroup) {
  const Call call;
  const auto result = call.attend();
  for (std::int64_t h = 0; h < 4; ++h) {
    const auto alone =
        attention(call.query.view().select(1, h).unsqueeze(1), call.key.view().select(1, h / 2).unsqueeze(1),
                  call.value.view().select(1, h / 2).unsqueeze(1), call.options);
    EXPECT_TRUE(same_bits(alone.output.view().select(1, 0), result.output.view().select(1, h))) << h;
  }
}

TEST(AttentionLayouts, StridesOfAnyOrderAndSignReadTheSameNumbers) {
  Call call;
  const auto expected = call.attend();
  const auto check = [&](auto arrange) {
    // Copies the tensor in another order and views the copy in the original order.
    const Tensor q = Tensor::copy_of(arrange(call.query.view()));
    const Tensor k = Tensor::copy_of(arrange(call.key.view()));
    const Tensor v = Tensor::copy_of(arrange(call.value.view()));
    EXPECT_TRUE(same_bits(attention(arrange(q.view()), arrange(k.view()), arrange(v.view()), call.options),
                          expected));
  };
  check([](const TensorView& x) { return x.transpose(1, 2); });  // BLHD
  check([](const TensorView& x) { return x.transpose(2, 3); });  // columns first
  check([](const TensorView& x) { return x.permute({3, 2, 1, 0}); });
  check([](const TensorView& x) {  // rows backwards
    const auto* last = static_cast<const double*>(x.data()) + (x.size(2) - 1) * x.strides()[2];
    return TensorView(last, x.shape(), {x.strides()[0], x.strides()[1], -x.strides()[2], x.strides()[3]});
  });
}

TEST(AttentionLayouts, PackedQueriesKeysAndValuesAreReadInPlace) {
  const Tensor packed = normal_tensor({2, 6, 3, 4, 8}, 5);  // [B, L, 3, H, D]
  const auto part = [&](std::int64_t which) { return packed.view().select(2, which).transpose(1, 2); };
  const AttentionOptions options{.causal = true, .need = kAll};
  EXPECT_TRUE(same_bits(
      attention(part(0), part(1), part(2), options),
      attention(Tensor::copy_of(part(0)), Tensor::copy_of(part(1)), Tensor::copy_of(part(2)), options)));
}

TEST(AttentionLayouts, StrideZeroRepeats) {
  Call call;
  const TensorView one = call.key.view().narrow(0, 0, 1).narrow(1, 0, 1);
  const TensorView repeated = one.expand({2, 2, 7, 8});
  EXPECT_EQ(repeated.strides()[0], 0);
  EXPECT_TRUE(same_bits(attention(call.query, repeated, call.value, call.options),
                        attention(call.query, Tensor::copy_of(repeated), call.value, call.options)));
}

TEST(AttentionLayouts, MasksAndBiasesBroadcastLikeNumPy) {
  Call call;
  const Tensor bias = normal_tensor({2, 4, 5, 7}, 7);
  for (const Dims& shape :
       {Dims{7}, Dims{1}, Dims{5, 1}, Dims{4, 1, 7}, Dims{2, 1, 1, 1}, Dims{1, 4, 5, 7}}) {
    TensorView small = bias;
    for (int axis = 0; axis < 4 - shape.size(); ++axis) small = small.select(0, 0);
    for (int axis = 0; axis < shape.size(); ++axis) small = small.narrow(axis, 0, shape[axis]);
    call.options.bias = small;
    const auto result = call.attend();
    const Tensor full = Tensor::copy_of(small.expand({2, 4, 5, 7}));
    call.options.bias = full;
    EXPECT_TRUE(same_bits(result, call.attend()));
  }
}

TEST(AttentionPacked, SequencesEqualSeparateCalls) {
  const Tensor query = normal_tensor({1, 4, 6, 8}, 1);
  const Tensor key = normal_tensor({1, 2, 9, 8}, 2);
  const Tensor value = normal_tensor({1, 2, 9, 3}, 3);
  const Tensor slopes = normal_tensor({4}, 4);
  const std::int64_t rows[] = {0, 2, 2, 5, 6};  // one sequence has no queries, another has no keys
  const std::int64_t keys[] = {0, 4, 6, 6, 9};
  AttentionOptions options{.causal = true,
                           .align = heed::Align::bottom_right,
                           .alibi_slopes = slopes,
                           .need = kAll,
                           .top_k = 2,
                           .received_last = 1};
  AttentionOptions packed_options = options;
  const TensorView row_offsets(rows, {5});
  const TensorView key_offsets(keys, {5});
  packed_options.query_segments = row_offsets;
  packed_options.key_segments = key_offsets;
  const auto packed = attention(query, key, value, packed_options);
  for (int s = 0; s < 4; ++s) {
    const std::int64_t row_count = rows[s + 1] - rows[s];
    const std::int64_t key_count = keys[s + 1] - keys[s];
    const auto row_part = [&](const Tensor& x) { return x.view().narrow(2, rows[s], row_count); };
    const auto key_part = [&](const Tensor& x) { return x.view().narrow(2, keys[s], key_count); };
    const auto alone = attention(row_part(query), key_part(key), key_part(value), options);
    EXPECT_TRUE(same_bits(alone.output, row_part(packed.output))) << s;
    EXPECT_TRUE(same_bits(alone.lse, row_part(packed.lse))) << s;
    EXPECT_TRUE(same_bits(alone.distance, row_part(packed.distance))) << s;
    EXPECT_TRUE(same_bits(alone.received, key_part(packed.received))) << s;
    EXPECT_TRUE(same_bits(alone.received_last, key_part(packed.received_last))) << s;
    EXPECT_TRUE(same_bits(alone.weights, row_part(packed.weights).narrow(3, keys[s], key_count))) << s;
  }
}

TEST(AttentionDtypes, ResultsAreF64ForF64AndF32ForAllOthers) {
  for (DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    const Tensor query = normal_tensor({3, 4}, 1, dtype);
    const auto result = attention(query, query, query, {.need = kAll, .top_k = 1, .map = {1, 1}});
    const DType summary = dtype == DType::f64 ? DType::f64 : DType::f32;
    EXPECT_EQ(result.output.dtype(), dtype);
    EXPECT_EQ(result.weights.dtype(), summary);
    EXPECT_EQ(result.lse.dtype(), summary);
    EXPECT_EQ(result.top_k_weight.dtype(), summary);
    EXPECT_EQ(result.top_k_index.dtype(), DType::i64);
    EXPECT_EQ(attention(query, query, query, {.output_dtype = DType::f32}).output.dtype(), DType::f32);
  }
}

TEST(AttentionDtypes, ANarrowOutputIsTheWideOneRoundedOnce) {
  const Tensor query = normal_tensor({9, 4}, 1, DType::bf16);
  const Tensor exact = Tensor::copy_of(query, DType::f64);
  const AttentionOptions options{.kernel = heed::Kernel::reference};
  const auto narrow = attention(query, query, query, options);
  const auto wide = attention(exact, exact, exact, options);
  EXPECT_TRUE(same_bits(narrow.output, Tensor::copy_of(wide.output, DType::bf16)));
}

TEST(AttentionInto, WritesOnlyWhatItIsGivenAndNothingBetween) {
  const Call call;
  const auto expected = call.attend();
  Tensor wide({2, 4, 5, 7}, DType::f64);
  for (double& x : wide.values<double>()) x = -7;
  Tensor index({2, 4, 5, 3}, DType::i64);
  Tensor map({2, 4, 2, 3}, DType::f64);
  Tensor lse({5, 4, 2}, DType::f64);
  AttentionOptions options{
      .causal = true, .align = heed::Align::bottom_right, .kernel = heed::Kernel::reference};
  const auto run = attention_into(call.query, call.key, call.value, options,
                                  {.output = wide.mutable_view().narrow(3, 2, 3),
                                   .lse = lse.mutable_view().permute({2, 1, 0}),
                                   .top_k_index = index,
                                   .map = map});
  EXPECT_EQ(run.kernel, heed::Kernel::reference);
  EXPECT_TRUE(same_bits(wide.view().narrow(3, 2, 3), expected.output));
  EXPECT_TRUE(same_bits(lse.view().permute({2, 1, 0}), expected.lse));
  EXPECT_TRUE(same_bits(index, expected.top_k_index));
  EXPECT_TRUE(same_bits(map, expected.map));
  for (std::int64_t column : {0, 1, 5, 6}) EXPECT_EQ(wide.at<double>(1, 2, 3, column), -7);
}

TEST(AttentionInto, NeedsNoOutput) {
  const Call call;
  Tensor entropy({2, 4, 5}, DType::f64);
  Tensor last({2, 4, 7}, DType::f64);
  AttentionOptions options = call.options;
  options.need = Need::none;
  (void)attention_into(call.query, call.key, call.value, options,
                       {.entropy = entropy, .received_last = last});
  const auto expected = call.attend();
  EXPECT_TRUE(same_bits(entropy, expected.entropy));
  EXPECT_TRUE(same_bits(last, expected.received_last));
}

TEST(AttentionInto, GivesTheSameBitsForEveryNumberOfThreads) {
  Call call;
  const auto expected = call.attend();
  for (int threads : {1, 2, 3, 5, 8, 64}) {
    call.options.threads = threads;
    EXPECT_TRUE(same_bits(call.attend(), expected));
  }
}

}  // namespace
