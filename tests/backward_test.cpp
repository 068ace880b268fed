// The backward pass in edge cases: leaks, empty sizes, huge numbers, layouts, requested gradients, threads.
// Other tests check that gradients are right: gradcheck_test, backward_property_test, backward_torch_test.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "attention_support.hpp"
#include "backward_call.hpp"
#include "describe_call.hpp"
#include "heed/attention/backward.hpp"
#include "support.hpp"

namespace {

using heed::AttentionBackwardInputs;
using heed::AttentionGradients;
using heed::AttentionGradientViews;
using heed::AttentionOptions;
using heed::Dims;
using heed::DType;
using heed::GradientRequest;
using heed::Kernel;
using heed::MutableTensorView;
using heed::Need;
using heed::Tensor;
using heed::TensorView;
using heed::test::largest_difference;
using heed::test::normal_tensor;
using heed::test::same_bits;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr GradientRequest kAll{.bias = true, .sinks = true};

// Inputs of a call with the results of its forward pass.
struct Call {
  Tensor query, key, value, grad_output;
  AttentionOptions options{};
  Tensor output{}, lse{};

  // Tensors are [1, H, Lq, D] and [1, H, Lk, D].
  static Call of(std::int64_t heads, std::int64_t queries, std::int64_t keys, std::int64_t width) {
    return {normal_tensor({1, heads, queries, width}, 1), normal_tensor({1, heads, keys, width}, 2),
            normal_tensor({1, heads, keys, width}, 3), normal_tensor({1, heads, queries, width}, 4)};
  }

  AttentionBackwardInputs inputs() {
    options.need = Need::lse;
    heed::AttentionResult result = heed::attention(query, key, value, options);
    output = std::move(result.output);
    lse = std::move(result.lse);
    return {query, key, value, output, lse, grad_output};
  }
  AttentionGradients gradients(const GradientRequest& request = {}) {
    return heed::attention_backward(inputs(), options, request);
  }
};

bool all_zero(const Tensor& tensor) {
  const Tensor wide = Tensor::copy_of(tensor, DType::f64);
  return std::all_of(wide.values<double>().begin(), wide.values<double>().end(),
                     [](double x) { return x == 0; });
}
bool all_nan(const TensorView& view) {
  const Tensor wide = Tensor::copy_of(view, DType::f64);
  return std::all_of(wide.values<double>().begin(), wide.values<double>().end(),
                     [](double x) { return std::isnan(x); });
}
bool all_finite(const TensorView& view) {
  const Tensor wide = Tensor::copy_of(view, DType::f64);
  return std::all_of(wide.values<double>().begin(), wide.values<double>().end(),
                     [](double x) { return std::isfinite(x); });
}

TEST(Backward, IsTheFormulaForOneQueryAndTwoKeys) {
  // Head dimension 1 with scores 0.5 and -0.25; the loss is the output.
  const Tensor query = Tensor::from<double>({0.5}, {1, 1});
  const Tensor key = Tensor::from<double>({1, -0.5}, {2, 1});
  const Tensor value = Tensor::from<double>({3, 7}, {2, 1});
  const Tensor one = Tensor::from<double>({1}, {1, 1});
  const auto forward = heed::attention(query, key, value, {.need = Need::lse});
  const AttentionGradients got =
      heed::attention_backward({query, key, value, forward.output, forward.lse, one});
  const double p = 1 / (1 + std::exp(-0.75));
  const double slope = p * (1 - p) * (3 - 7);  // d out / d (s_0 - s_1)
  EXPECT_NEAR(got.value.at<double>(0, 0), p, 1e-15);
  EXPECT_NEAR(got.value.at<double>(1, 0), 1 - p, 1e-15);
  EXPECT_NEAR(got.query.at<double>(0, 0), slope * 1.5, 1e-15);
  EXPECT_NEAR(got.key.at<double>(0, 0), slope * 0.5, 1e-15);
  EXPECT_NEAR(got.key.at<double>(1, 0), -slope * 0.5, 1e-15);
  EXPECT_EQ(got.kernel, Kernel::reference);
  EXPECT_EQ(got.isa, "f64 reference");
  EXPECT_EQ(got.threads, 1);
}

TEST(Backward, ARowWithNoKeyHasTheGradientZeroAndAddsNone) {
  Call call = Call::of(2, 3, 4, 5);
  call.options.causal = true;
  call.options.query_offset = -2;  // rows 0 and 1 see nothing
  const Tensor bias = normal_tensor({3, 4}, 5);
  call.options.bias = bias;
  const AttentionGradients clean = call.gradients({.bias = true});
  for (std::int64_t h = 0; h < 2; ++h)
    for (std::int64_t i = 0; i < 2; ++i)
      for (std::int64_t d = 0; d < 5; ++d) {
        EXPECT_EQ(clean.query.at<double>(0, h, i, d), 0);
        call.query.at<double>(0, h, i, d) = kNaN;
        call.grad_output.at<double>(0, h, i, d) = kInfinity;
      }
  const AttentionGradients poisoned = call.gradients({.bias = true});
  EXPECT_TRUE(same_bits(poisoned.query, clean.query));
  EXPECT_TRUE(same_bits(poisoned.key, clean.key));
  EXPECT_TRUE(same_bits(poisoned.value, clean.value));
  EXPECT_TRUE(same_bits(poisoned.bias, clean.bias));
}

TEST(Backward, ARowWithNothingButItsSinkDifferentiatesTheSinkByTheLse) {
  Call call = Call::of(1, 1, 1, 2);
  const Tensor sinks = Tensor::from<double>({0.5}, {1});
  const Tensor none = Tensor::from<bool>({false}, {1});
  const Tensor grad_lse = Tensor::from<double>({3}, {1, 1, 1});
  call.options.sinks = sinks;
  call.options.mask = none;
  AttentionBackwardInputs inputs = call.inputs();
  inputs.grad_lse = grad_lse;  // lse = sink, so its derivative is 1
  const AttentionGradients got = heed::attention_backward(inputs, call.options, {.sinks = true});
  EXPECT_EQ(got.sinks.at<double>(0), 3);
  EXPECT_TRUE(all_zero(got.query));
}

TEST(Backward, AForbiddenKeyLeaksIntoNoGradientWhateverItHolds) {
  const Tensor mask = Tensor::from<bool>({true, false, true, false}, {4});
  const Tensor bias = Tensor::from<double>({0, 1, 0, -kInfinity}, {4});
  Call call = Call::of(2, 3, 4, 5);
  call.options.mask = mask;
  call.options.bias = bias;
  const Tensor grad_weights = normal_tensor({1, 2, 3, 4}, 6);
  const auto differentiate = [&](const Tensor& by_weights) {
    AttentionBackwardInputs inputs = call.inputs();
    inputs.grad_weights = by_weights;
    return heed::attention_backward(inputs, call.options, {.bias = true});
  };
  const AttentionGradients clean = differentiate(grad_weights);
  Tensor poison = grad_weights;
  for (std::int64_t h = 0; h < 2; ++h)
    for (const std::int64_t j : {1, 3}) {
      for (std::int64_t d = 0; d < 5; ++d) {
        EXPECT_EQ(clean.key.at<double>(0, h, j, d), 0);
        EXPECT_EQ(clean.value.at<double>(0, h, j, d), 0);
        call.key.at<double>(0, h, j, d) = kNaN;
        call.value.at<double>(0, h, j, d) = kInfinity;
      }
      for (std::int64_t i = 0; i < 3; ++i) poison.at<double>(0, h, i, j) = kNaN;
    }
  const AttentionGradients poisoned = differentiate(poison);
  EXPECT_TRUE(same_bits(poisoned.query, clean.query));
  EXPECT_TRUE(same_bits(poisoned.key, clean.key));
  EXPECT_TRUE(same_bits(poisoned.value, clean.value));
  EXPECT_TRUE(same_bits(poisoned.bias, clean.bias));
  EXPECT_EQ(clean.bias.at<double>(3), 0) << "a bias of -inf";
}

TEST(Backward, ANaNStaysWithTheRowsAndKeysThatItTouches) {
  // Causal: row 1 of 4 sees keys 0 and 1. NaN in this row must affect no other row.
  const auto touched = [](Call& call) {
    call.options.causal = true;
    const AttentionGradients got = call.gradients();
    for (const std::int64_t i : {0, 2, 3}) EXPECT_TRUE(all_finite(got.query.view().select(2, i))) << i;
    EXPECT_TRUE(all_nan(got.query.view().select(2, 1)));
    for (const std::int64_t j : {0, 1}) EXPECT_TRUE(all_nan(got.key.view().select(2, j))) << j;
    for (const std::int64_t j : {2, 3}) {
      EXPECT_TRUE(all_finite(got.key.view().select(2, j))) << j;
      EXPECT_TRUE(all_finite(got.value.view().select(2, j))) << j;
    }
    return all_nan(got.value.view().narrow(2, 0, 2));
  };
  Call by_query = Call::of(1, 4, 4, 3);
  by_query.query.at<double>(0, 0, 1, 2) = kNaN;
  EXPECT_TRUE(touched(by_query)) << "weights are NaN";
  Call by_gradient = Call::of(1, 4, 4, 3);
  for (std::int64_t d = 0; d < 3; ++d) by_gradient.grad_output.at<double>(0, 0, 1, d) = kNaN;
  EXPECT_TRUE(touched(by_gradient)) << "dO is NaN";
  Call by_infinity = Call::of(1, 4, 4, 3);
  for (std::int64_t d = 0; d < 3; ++d) by_infinity.query.at<double>(0, 0, 1, d) = 1e308;
  by_infinity.key.at<double>(0, 0, 1, 0) = by_infinity.key.at<double>(0, 0, 1, 1) = 100;
  for (const std::int64_t i : {2, 3})  // rows that also see key 1
    for (std::int64_t d = 0; d < 3; ++d) by_infinity.query.at<double>(0, 0, i, d) = 0;
  EXPECT_TRUE(touched(by_infinity)) << "a score of +inf";

  // NaN in a value makes only dP NaN. dV = p dO does not depend on it.
  Call by_value = Call::of(1, 4, 4, 3);
  by_value.options.window = {0, 0};
  by_value.value.at<double>(0, 0, 1, 0) = kNaN;
  EXPECT_FALSE(all_nan(by_value.gradients().value.view().select(2, 1)));
  EXPECT_TRUE(all_nan(by_value.gradients().key.view().select(2, 1)));
}

TEST(Backward, WhatDropoutDropsIsNotRead) {
  Call call = Call::of(1, 1, 64, 2);
  call.options.dropout = {.probability = 0.5, .seed = 7};
  const AttentionGradients clean = call.gradients();
  bool dropped = false, kept = false;
  for (std::int64_t j = 0; j < 64; ++j) {
    const bool drops = clean.value.at<double>(0, 0, j, 0) == 0;
    (drops ? dropped : kept) = true;
    EXPECT_NE(clean.key.at<double>(0, 0, j, 0), 0) << "its weight still competes";
    if (drops) call.value.at<double>(0, 0, j, 0) = kNaN;
  }
  EXPECT_TRUE(dropped && kept);
  EXPECT_TRUE(same_bits(call.gradients().key, clean.key));
}

TEST(Backward, EmptySizesGiveZerosOrNothing) {
  const Tensor bias = normal_tensor({1, 4}, 5);
  const Tensor sinks = normal_tensor({2}, 6);
  Call no_queries = Call::of(2, 0, 4, 3);
  no_queries.options.bias = bias;
  no_queries.options.sinks = sinks;
  const AttentionGradients without_queries = no_queries.gradients(kAll);
  EXPECT_EQ(without_queries.query.shape(), (Dims{1, 2, 0, 3}));
  EXPECT_TRUE(all_zero(without_queries.key) && all_zero(without_queries.value));
  EXPECT_TRUE(all_zero(without_queries.bias) && all_zero(without_queries.sinks));
  EXPECT_EQ(without_queries.bias.shape(), (Dims{1, 4}));

  Call no_keys = Call::of(2, 3, 0, 3);
  const Tensor scalar = normal_tensor({1, 1}, 5);
  no_keys.options.bias = scalar;
  const AttentionGradients without_keys = no_keys.gradients({.bias = true});
  EXPECT_TRUE(all_zero(without_keys.query) && all_zero(without_keys.bias));
  EXPECT_EQ(without_keys.key.shape(), (Dims{1, 2, 0, 3}));

  const Tensor none({0, 2, 3, 4}, DType::f64), rows({0, 2, 3}, DType::f64);
  const AttentionGradients no_batch =
      heed::attention_backward({none, none, none, none, rows, none}, {.sinks = sinks}, {.sinks = true});
  EXPECT_EQ(no_batch.query.shape(), (Dims{0, 2, 3, 4}));
  EXPECT_TRUE(all_zero(no_batch.sinks));

  // Other sizes may be as large as they like.
  constexpr std::int64_t kHuge = std::int64_t{1} << 45;
  const auto empty = [](const Dims& shape) { return TensorView(nullptr, DType::f64, shape); };
  const TensorView far = empty({0, 2, kHuge, 4}), far_rows = empty({0, 2, kHuge});
  EXPECT_EQ(heed::attention_backward({far, far, far, far, far_rows, far}).key.shape(), far.shape());

  const Tensor no_heads({1, 0, 3, 4}, DType::f64), keys({1, 2, 3, 4}, DType::f64), row({1, 0, 3}, DType::f64);
  const AttentionGradients headless =
      heed::attention_backward({no_heads, keys, keys, no_heads, row, no_heads});
  EXPECT_TRUE(all_zero(headless.key) && headless.key.count() > 0);

  const Tensor flat({2, 3}, DType::f64), no_width({2, 0}, DType::f64), two({2}, DType::f64);
  const AttentionGradients no_value =
      heed::attention_backward({flat, flat, no_width, no_width, two, no_width});
  EXPECT_EQ(no_value.value.shape(), (Dims{2, 0}));
  EXPECT_TRUE(all_zero(no_value.query));
}

TEST(Backward, ABatchWithoutRowsMayBeOfAnySize) {
  constexpr std::int64_t kMany = std::int64_t{1} << 40;
  const Tensor sinks = normal_tensor({1}, 6, DType::f32);
  for (const Dims& shape : {Dims{kMany, 1, 0, 8}, Dims{1, kMany, 0, 8}}) {
    const Tensor empty(shape, DType::f32), rows({shape[0], shape[1], 0}, DType::f32);
    const bool one_head = shape[1] == 1;
    const AttentionGradients gradients = heed::attention_backward(
        {empty, empty, empty, empty, rows, empty},
        one_head ? AttentionOptions{.sinks = sinks} : AttentionOptions{}, {.sinks = one_head});
    EXPECT_EQ(gradients.key.shape(), shape);
    EXPECT_TRUE(!one_head || same_bits(gradients.sinks, Tensor({1}, DType::f32)));
  }
}

TEST(Backward, SharedGradientsAreZerosInACallWithoutEntries) {
  const Tensor none({0, 1, 3, 4}, DType::f32), lse({0, 1, 3}, DType::f32), decay({3}, DType::f32),
      sinks({1}, DType::f32), bias({3, 3}, DType::f32);
  for (const Kernel kernel : {Kernel::reference, Kernel::fused}) {
    Tensor by_decay = normal_tensor({3}, 1, DType::f32), by_sinks = normal_tensor({1}, 2, DType::f32),
           by_bias = normal_tensor({3, 3}, 3, DType::f32);
    heed::AttentionGradientViews views;
    views.decay = by_decay.mutable_view();
    views.sinks = by_sinks.mutable_view();
    views.bias = by_bias.mutable_view();
    (void)heed::attention_backward_into({none, none, none, none, lse, none},
                                        {.bias = bias, .decay = decay, .sinks = sinks, .kernel = kernel},
                                        views);
    EXPECT_TRUE(same_bits(by_decay, Tensor({3}, DType::f32)));
    EXPECT_TRUE(same_bits(by_sinks, Tensor({1}, DType::f32)));
    EXPECT_TRUE(same_bits(by_bias, Tensor({3, 3}, DType::f32)));
  }
}

TEST(Backward, HugeScoresHaveTheGradientsOfTheirWeights) {
  // Two scores of 1e38 have weights of 0.5 each, though an lse in f32 could not tell.
  const Tensor query = Tensor::from<float>({1e19f}, {1, 1});
  const Tensor key = Tensor::from<float>({1e19f, 1e19f}, {2, 1});
  const Tensor value = Tensor::from<float>({2, 4}, {2, 1});
  const Tensor grad = Tensor::from<float>({1}, {1, 1});
  const auto forward = heed::attention(query, key, value, {.need = Need::lse});
  const AttentionGradients got =
      heed::attention_backward({query, key, value, forward.output, forward.lse, grad});
  EXPECT_EQ(got.value.at<float>(0, 0), 0.5f);
  EXPECT_EQ(got.value.at<float>(1, 0), 0.5f);
  EXPECT_EQ(got.key.at<float>(0, 0), -0.5f * 1e19f);
  EXPECT_EQ(got.key.at<float>(1, 0), 0.5f * 1e19f);
  EXPECT_EQ(got.query.at<float>(0, 0), 0);
}

TEST(Backward, FewerAxesGiveGradientsWithoutThem) {
  Call call = Call::of(1, 3, 4, 5);
  const AttentionGradients whole = call.gradients();
  const auto inputs = call.inputs();
  const auto first = [](const TensorView& view) { return view.select(0, 0); };
  const AttentionGradients three =
      heed::attention_backward({first(inputs.query), first(inputs.key), first(inputs.value),
                                first(inputs.output), first(inputs.lse), first(inputs.grad_output)});
  EXPECT_TRUE(same_bits(three.query, first(whole.query.view())));
  EXPECT_TRUE(same_bits(three.value, first(whole.value.view())));
  const auto second = [&](const TensorView& view) { return first(first(view)); };
  const AttentionGradients two =
      heed::attention_backward({second(inputs.query), second(inputs.key), second(inputs.value),
                                second(inputs.output), second(inputs.lse), second(inputs.grad_output)});
  EXPECT_TRUE(same_bits(two.key, second(whole.key.view())));
}

TEST(Backward, AnInputThatRepeatsHasAGradientForEachOfItsRows) {
  Call call = Call::of(2, 3, 4, 5);
  const TensorView one_key = call.key.view().narrow(1, 0, 1).expand({1, 2, 4, 5});
  auto inputs = call.inputs();
  inputs.key = one_key;
  const Tensor copy = Tensor::copy_of(one_key);
  const AttentionGradients repeated = heed::attention_backward(inputs);
  inputs.key = copy;
  const AttentionGradients apart = heed::attention_backward(inputs);
  EXPECT_TRUE(same_bits(repeated.key, apart.key));
  EXPECT_TRUE(same_bits(repeated.query, apart.query));
}

TEST(Backward, TheBiasGradientHasTheShapeThatTheBiasWasGivenIn) {
  Call call = Call::of(2, 3, 4, 5);
  const Tensor full = normal_tensor({1, 2, 3, 4}, 5);
  call.options.bias = full;
  const Tensor whole = call.gradients({.bias = true}).bias;
  ASSERT_EQ(whole.shape(), (Dims{1, 2, 3, 4}));
  // Biases of zeros in every shape; each gradient is a sum of the full one.
  const Tensor zeros({1, 2, 3, 4}, DType::f64);
  call.options.bias = zeros;
  const Tensor all = call.gradients({.bias = true}).bias;
  for (const Dims& shape : {Dims{4}, Dims{1}, Dims{3, 1}, Dims{3, 4}, Dims{2, 1, 4}, Dims{1, 2, 1, 1}}) {
    const Tensor small(shape, DType::f64);
    call.options.bias = small;
    const Tensor got = call.gradients({.bias = true}).bias;
    ASSERT_EQ(got.shape(), shape);
    Tensor sums(shape, DType::f64);
    const MutableTensorView spread = sums.mutable_view().expand({1, 2, 3, 4});
    heed::test::for_each_index(all.shape(), [&](const Dims& at) {
      spread.at<double>(at[0], at[1], at[2], at[3]) += all.at<double>(at[0], at[1], at[2], at[3]);
    });
    EXPECT_TRUE(largest_difference(got, sums) <= 1e-14) << to_string(shape);  // sums of at most 24 terms
  }
}

TEST(Backward, AxesThatABiasOrSinksRepeatAreSummedOver) {
  Call call = Call::of(2, 3, 4, 5);
  const Tensor row = normal_tensor({4}, 5, DType::f32);
  const Tensor sink = normal_tensor({1}, 6, DType::f32);
  call.options.bias = row;
  call.options.sinks = sink;
  const AttentionGradients small = call.gradients(kAll);
  call.options.bias = row.view().expand({2, 3, 4});
  call.options.sinks = sink.view().expand({2});
  const AttentionGradients repeated = call.gradients(kAll);
  EXPECT_EQ(repeated.bias.shape(), (Dims{1, 1, 4}));
  EXPECT_EQ(repeated.sinks.shape(), (Dims{1}));
  EXPECT_EQ(repeated.bias.dtype(), DType::f32) << "the bias's, not the query's";
  EXPECT_TRUE(same_bits(repeated.bias.view().reshape({4}), small.bias));
  EXPECT_TRUE(same_bits(repeated.sinks, small.sinks));

  // An output tensor of the caller decides by its shape what is summed.
  Tensor apart({2, 1, 1}, DType::f32), heads({2}, DType::f32);
  (void)heed::attention_backward_into(call.inputs(), call.options, {.bias = apart, .sinks = heads});
  EXPECT_NEAR(heads.at<float>(0) + heads.at<float>(1), small.sinks.at<float>(0), 1e-6);  // f32, around 1
  const auto parts = small.bias.values<float>();
  EXPECT_NEAR(apart.at<float>(0, 0, 0) + apart.at<float>(1, 0, 0), parts[0] + parts[1] + parts[2] + parts[3],
              1e-6);
}

// A gradient has the same bits whichever others are requested, and whatever the layout of its view.
TEST(Backward, EveryGradientAloneAndInAnyLayoutHasTheSameBits) {
  for (std::uint64_t index = 0; index < 150; ++index) {
    heed::test::BackwardCall made = heed::test::backward_call(20240704, index);
    const AttentionGradients all = heed::attention_backward(made.inputs, made.call.options, made.request);
    heed::test::Draw draw(5, index);
    std::vector<Tensor> memory;
    const auto check = [&](const Tensor& expected, MutableTensorView AttentionGradientViews::*member) {
      if (expected.shape() == Dims{0}) return;
      AttentionGradientViews views;
      views.*member = heed::test::strided_view(expected.shape(), expected.dtype(), draw, memory, false);
      (void)heed::attention_backward_into(made.inputs, made.call.options, views);
      ASSERT_TRUE(same_bits(views.*member, expected)) << describe(made.call);
    };
    check(all.query, &AttentionGradientViews::query);
    check(all.key, &AttentionGradientViews::key);
    check(all.value, &AttentionGradientViews::value);
    check(all.bias, &AttentionGradientViews::bias);
    check(all.sinks, &AttentionGradientViews::sinks);
  }
}

TEST(Backward, WhatIsNotAskedForStaysEmpty) {
  Call call = Call::of(1, 2, 3, 4);
  const AttentionGradients got = call.gradients({.query = false, .key = true, .value = false});
  for (const Tensor* tensor : {&got.query, &got.value, &got.bias, &got.sinks})
    EXPECT_EQ(tensor->shape(), Dims{0});
  EXPECT_EQ(got.key.shape(), (Dims{1, 1, 3, 4}));
}

TEST(Backward, BitsDoNotDependOnTheNumberOfThreads) {
  for (std::uint64_t index = 0; index < 60; ++index) {
    heed::test::BackwardCall made = heed::test::backward_call(20240705, index);
    made.call.options.threads = 1;
    const AttentionGradients one = heed::attention_backward(made.inputs, made.call.options, made.request);
    EXPECT_EQ(one.threads, 1);
    for (const int threads : {2, 3, 8}) {
      made.call.options.threads = threads;
      const AttentionGradients many = heed::attention_backward(made.inputs, made.call.options, made.request);
      EXPECT_LE(many.threads, threads);
      for (Tensor AttentionGradients::*member :
           {&AttentionGradients::query, &AttentionGradients::key, &AttentionGradients::value,
            &AttentionGradients::bias, &AttentionGradients::sinks})
        ASSERT_TRUE(same_bits(many.*member, one.*member)) << describe(made.call);
    }
  }
}

}  // namespace
