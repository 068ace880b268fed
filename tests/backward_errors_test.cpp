// Every way in which a call of the backward pass can be wrong, and the resulting message.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "heed/attention/backward.hpp"
#include "support.hpp"

namespace {

using heed::AttentionBackwardInputs;
using heed::AttentionGradientViews;
using heed::AttentionOptions;
using heed::Dims;
using heed::DType;
using heed::GradientRequest;
using heed::Kernel;
using heed::MutableTensorView;
using heed::Tensor;
using heed::TensorView;
using heed::test::message_of;

// A correct call: B 2, H 4, Hkv 2, Lq 3, Lk 5, D 8, Dv 6.
struct Call {
  Tensor query{{2, 4, 3, 8}};
  Tensor key{{2, 2, 5, 8}};
  Tensor value{{2, 2, 5, 6}};
  Tensor output{{2, 4, 3, 6}};
  Tensor lse{{2, 4, 3}};

  AttentionBackwardInputs inputs() const { return {query, key, value, output, lse, output}; }
};

std::string message_of_inputs(const AttentionBackwardInputs& inputs, const AttentionOptions& options = {},
                              const GradientRequest& request = {}) {
  return message_of([&] { (void)heed::attention_backward(inputs, options, request); });
}

std::string message_of_views(const AttentionGradientViews& gradients, const AttentionOptions& options = {}) {
  const Call call;
  return message_of([&] { (void)heed::attention_backward_into(call.inputs(), options, gradients); });
}

// A correct call with one input replaced.
template <class View>
std::string message_with(View AttentionBackwardInputs::*member, const TensorView& view) {
  const Call call;
  AttentionBackwardInputs inputs = call.inputs();
  inputs.*member = view;
  return message_of_inputs(inputs);
}

TEST(BackwardErrors, ACallThatIsRightHasNone) {
  EXPECT_EQ(message_of_inputs(Call().inputs()), "no error");
  EXPECT_EQ(message_of_views({}), "no error") << "nothing is asked for";
}

TEST(BackwardErrors, WhatTheForwardPassRefusesIsRefused) {
  const Call call;
  EXPECT_EQ(message_of_inputs({}), "query has shape [0]; 2 to 4 axes, [B, H, L, D], are expected");
  EXPECT_EQ(message_with(&AttentionBackwardInputs::key, Tensor({2, 2, 5, 7})),
            "key has head dimension 7 (shape [2, 2, 5, 7]); 8 as in query is expected");
  EXPECT_EQ(message_of_inputs(call.inputs(), {.softcap = -1}),
            "softcap is -1; a finite number of 0 (off) or more is expected");
}

TEST(BackwardErrors, WhatTheForwardPassGaveHasItsShapeAndDtype) {
  using In = AttentionBackwardInputs;
  EXPECT_EQ(message_with(&In::output, Tensor({2, 4, 3, 8})),
            "output has shape [2, 4, 3, 8]; [2, 4, 3, 6] is expected");
  EXPECT_EQ(message_with(&In::output, Tensor({4, 3, 6})),
            "output has shape [4, 3, 6]; [2, 4, 3, 6] is expected");
  EXPECT_EQ(message_with(&In::output, TensorView()), "output has shape [0]; [2, 4, 3, 6] is expected");
  EXPECT_EQ(message_with(&In::output, Tensor({2, 4, 3, 6}, DType::f16)),
            "output has dtype f16; f32 as in query is expected");
  EXPECT_EQ(message_with(&In::lse, Tensor({2, 4, 5})), "lse has shape [2, 4, 5]; [2, 4, 3] is expected");
  EXPECT_EQ(message_with(&In::lse, Tensor({2, 4, 3}, DType::f64)), "lse has dtype f64; f32 is expected");
}

TEST(BackwardErrors, GradientsOfResultsHaveTheirShapesAndDtypes) {
  using In = AttentionBackwardInputs;
  EXPECT_EQ(message_with(&In::grad_output, Tensor({2, 4, 3, 5})),
            "grad_output has shape [2, 4, 3, 5]; [2, 4, 3, 6] is expected");
  EXPECT_EQ(message_with(&In::grad_output, Tensor({2, 4, 3, 6}, DType::f64)),
            "grad_output has dtype f64; f32 as in query is expected");
  EXPECT_EQ(message_with(&In::grad_lse, Tensor({2, 4, 3, 1})),
            "grad_lse has shape [2, 4, 3, 1]; [2, 4, 3] is expected");
  EXPECT_EQ(message_with(&In::grad_lse, Tensor({2, 4, 3}, DType::bf16)),
            "grad_lse has dtype bf16; f32 is expected");
  EXPECT_EQ(message_with(&In::grad_weights, Tensor({2, 4, 3, 3})),
            "grad_weights has shape [2, 4, 3, 3]; [2, 4, 3, 5] is expected");
  EXPECT_EQ(message_with(&In::grad_weights, Tensor({2, 4, 3, 5}, DType::f64)),
            "grad_weights has dtype f64; f32 is expected");
}

TEST(BackwardErrors, NarrowInputsTakeTheirOwnDtypeOrF32) {
  const Tensor half({1, 2}, DType::f16), wide({1, 2}), lse({1});
  EXPECT_EQ(message_of_inputs({half, half, half, wide, lse, half}), "no error");
  EXPECT_EQ(message_of_inputs({half, half, half, half, lse, wide}), "no error");
  EXPECT_EQ(message_of_inputs({half, half, half, Tensor({1, 2}, DType::bf16), lse, wide}),
            "output has dtype bf16; f16 as in query or f32 is expected");
}

TEST(BackwardErrors, ABiasAndSinksAreDifferentiatedByWhereTheyAre) {
  const Call call;
  Tensor somewhere({3, 5});
  EXPECT_EQ(message_of_inputs(call.inputs(), {}, {.bias = true}),
            "request.bias is true, but the call has no bias");
  EXPECT_EQ(message_of_inputs(call.inputs(), {}, {.sinks = true}),
            "request.sinks is true, but the call has no sinks");
  EXPECT_EQ(message_of_views({.bias = somewhere}), "gradients.bias is given, but the call has no bias");
  EXPECT_EQ(message_of_views({.sinks = somewhere}), "gradients.sinks is given, but the call has no sinks");
}

TEST(BackwardErrors, GradientsHaveTheShapesAndDtypesOfTheirTensors) {
  Tensor wrong({2, 4, 3, 7}), doubles({2, 2, 5, 8}, DType::f64);
  EXPECT_EQ(message_of_views({.query = wrong}),
            "gradients.query has shape [2, 4, 3, 7]; [2, 4, 3, 8] is expected");
  EXPECT_EQ(message_of_views({.key = doubles}), "gradients.key has dtype f64; f32 is expected");
  EXPECT_EQ(message_of_views({.value = wrong}),
            "gradients.value has shape [2, 4, 3, 7]; [2, 2, 5, 6] is expected");
  const Tensor bias({3, 5}, DType::f16), sinks({4}, DType::bf16);
  Tensor bad_bias({3, 4}, DType::f16), f32({3, 5}), bad_sinks({3}, DType::bf16);
  EXPECT_EQ(message_of_views({.bias = bad_bias}, {.bias = bias}),
            "gradients.bias has shape [3, 4]; a shape that broadcasts to [2, 4, 3, 5] is expected");
  EXPECT_EQ(message_of_views({.bias = f32}, {.bias = bias}), "gradients.bias has dtype f32; f16 is expected");
  EXPECT_EQ(message_of_views({.sinks = bad_sinks}, {.sinks = sinks}),
            "gradients.sinks has shape [3]; a shape that broadcasts to [4] is expected");
  EXPECT_EQ(message_of_views({.sinks = f32}, {.sinks = sinks}),
            "gradients.sinks has shape [3, 5]; a shape that broadcasts to [4] is expected");
}

TEST(BackwardErrors, GradientsDoNotOverlapThemselves) {
  Tensor memory({500});
  void* data = memory.mutable_view().data();
  EXPECT_EQ(message_of_views({.query = MutableTensorView(data, DType::f32, {2, 4, 3, 8}, {96, 0, 8, 1})}),
            "gradients.query has shape [2, 4, 3, 8] and strides [96, 0, 8, 1], so it may overlap itself; "
            "separate memory for each element is expected");
  const Tensor bias({3, 5});
  EXPECT_EQ(message_of_views({.bias = MutableTensorView(data, DType::f32, {3, 5}, {0, 1})}, {.bias = bias}),
            "gradients.bias has shape [3, 5] and strides [0, 1], so it may overlap itself; separate memory "
            "for each element is expected");
}

TEST(BackwardErrors, GradientsDoNotOverlapEachOther) {
  Tensor memory({500});
  auto* data = memory.values<float>().data();
  const auto query = [](float* at) { return MutableTensorView(at, {2, 4, 3, 8}); };
  const auto key = [](float* at) { return MutableTensorView(at, {2, 2, 5, 8}); };
  EXPECT_EQ(message_of_views({.query = query(data), .key = key(data + 191)}),
            "gradients.key overlaps gradients.query in memory; separate memory is expected");
  EXPECT_EQ(message_of_views({.query = query(data), .key = key(data + 192)}), "no error");
  const Tensor bias({3, 5}), sinks({4});
  const AttentionOptions options{.bias = bias, .sinks = sinks};
  EXPECT_EQ(message_of_views({.key = key(data + 14), .bias = MutableTensorView(data, {3, 5})}, options),
            "gradients.bias overlaps gradients.key in memory; separate memory is expected");
  EXPECT_EQ(
      message_of_views({.bias = MutableTensorView(data, {3, 5}), .sinks = MutableTensorView(data + 14, {1})},
                       options),
      "gradients.sinks overlaps gradients.bias in memory; separate memory is expected");
  // Rows of query and key gradients may alternate in one array, 8 elements each.
  EXPECT_EQ(message_of_views({.query = MutableTensorView(data, {2, 4, 3, 8}, {240, 48, 16, 1}),
                              .key = MutableTensorView(data + 8, {2, 2, 5, 8}, {240, 80, 16, 1})}),
            "no error");
}

TEST(BackwardErrors, GradientsDoNotOverlapInputs) {
  using Into = MutableTensorView AttentionGradientViews::*;
  Call call;
  Tensor bias({3, 5}), sinks({4}), slopes({4}), grad_lse({2, 4, 3}), grad_weights({2, 4, 3, 5});
  AttentionBackwardInputs inputs = call.inputs();
  inputs.grad_lse = grad_lse;
  inputs.grad_weights = grad_weights;
  const AttentionOptions options{.bias = bias, .alibi_slopes = slopes, .sinks = sinks};
  const auto message = [&](Into member, Tensor& memory, const Dims& shape) {
    AttentionGradientViews gradients;
    gradients.*member = MutableTensorView(memory.mutable_view().data(), DType::f32, shape);
    return message_of([&] { (void)heed::attention_backward_into(inputs, options, gradients); });
  };
  const auto overlaps = [](const std::string& gradient, const std::string& input) {
    return "gradients." + gradient + " overlaps " + input + " in memory; separate memory is expected";
  };
  using Views = AttentionGradientViews;
  EXPECT_EQ(message(&Views::query, call.query, {2, 4, 3, 8}), overlaps("query", "query"));
  EXPECT_EQ(message(&Views::key, call.key, {2, 2, 5, 8}), overlaps("key", "key"));
  EXPECT_EQ(message(&Views::value, call.value, {2, 2, 5, 6}), overlaps("value", "value"));
  EXPECT_EQ(message(&Views::value, call.output, {2, 2, 5, 6}), overlaps("value", "output"));
  EXPECT_EQ(message(&Views::sinks, call.lse, {4}), overlaps("sinks", "lse"));
  EXPECT_EQ(message(&Views::sinks, grad_lse, {4}), overlaps("sinks", "grad_lse"));
  EXPECT_EQ(message(&Views::bias, grad_weights, {4, 1, 1}), overlaps("bias", "grad_weights"));
  EXPECT_EQ(message(&Views::bias, bias, {3, 5}), overlaps("bias", "bias"));
  EXPECT_EQ(message(&Views::sinks, sinks, {4}), overlaps("sinks", "sinks"));
  EXPECT_EQ(message(&Views::sinks, slopes, {1}), overlaps("sinks", "alibi_slopes"));
  Tensor grad_output({2, 4, 3, 6});
  inputs.grad_output = grad_output;
  EXPECT_EQ(message(&Views::value, grad_output, {2, 2, 5, 6}), overlaps("value", "grad_output"));
}

TEST(BackwardErrors, DataIsAlignedToItsElements) {
  std::int64_t memory[64] = {};
  const TensorView crooked(reinterpret_cast<std::byte*>(memory) + 1, DType::f32, {2, 4, 3});
  EXPECT_EQ(message_with(&AttentionBackwardInputs::lse, crooked),
            "lse is not aligned; its f32 data is expected at a multiple of 4 bytes");
}

TEST(BackwardErrors, AKernelThatCannotDoTheCallIsRefused) {
  EXPECT_EQ(
      message_of_inputs(Call().inputs(), {.scale = 1e300, .kernel = Kernel::fused}),
      "kernel is fused, whose backward pass supports f32, f16 and bf16, head and value dimensions from 1 to "
      "1024, but no gradient of the weights; automatic or reference is expected for this call");
}

TEST(BackwardErrors, NothingIsWrittenWhenTheCallIsWrong) {
  Tensor query({2, 4, 3, 8}), wrong({1});
  for (float& x : query.values<float>()) x = 7;
  EXPECT_NE(message_of_views({.query = query, .key = wrong}), "no error");
  for (float x : query.values<float>()) EXPECT_EQ(x, 7);
}

}  // namespace
