// Compares the layers with results of PyTorch and the notebooks (tests/data/golden).
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "golden.hpp"
#include "heed/nn/layers.hpp"

namespace {

using heed::AttentionOptions;
using heed::DType;
using heed::Generator;
using heed::Need;
using heed::Tensor;
using heed::TensorView;
using heed::nn::Embedding;
using heed::nn::LayerResult;
using heed::nn::Linear;
using heed::nn::MultiHeadAttention;
using heed::nn::MultiHeadOptions;
using heed::nn::SelfAttention;
using heed::test::golden;
using heed::test::relative_error;
using heed::test::same_bits;

// Two f32 computations that sum in different orders, relative to the tensor's norm.
constexpr double kTolerance = 2e-6;

void expect_near(const TensorView& got, const std::string& name) {
  EXPECT_TRUE(relative_error(got, golden(name)) <= kTolerance)
      << name << ": " << to_string(got.shape()) << ", relative error " << relative_error(got, golden(name));
}

class TorchInitialisation : public testing::TestWithParam<std::uint64_t> {
 protected:
  Tensor recorded(const std::string& name) const {
    return golden("torch_generator/seed_" + std::to_string(GetParam()) + "/" + name);
  }
  Generator generator{GetParam()};
};

TEST_P(TorchInitialisation, OfAnEmbedding) {
  EXPECT_TRUE(relative_error(Embedding(7, 5, generator).weight, recorded("embedding_7_5_weight")) <=
              kTolerance);
}

TEST_P(TorchInitialisation, OfALinearHasTheSameBits) {
  const Linear layer(24, 10, true, generator);
  EXPECT_TRUE(same_bits(layer.weight, recorded("linear_24_10_weight")));
  EXPECT_TRUE(same_bits(*layer.bias, recorded("linear_24_10_bias")));
}

TEST_P(TorchInitialisation, OfAMultiheadAttentionHasTheSameBits) {
  const MultiHeadAttention layer({.dim = 16, .heads = 4}, generator);
  const Tensor in_proj = recorded("mha_in_proj_weight");
  EXPECT_TRUE(same_bits(layer.query.weight, Tensor::copy_of(in_proj.view().narrow(0, 0, 16))));
  EXPECT_TRUE(same_bits(layer.key.weight, Tensor::copy_of(in_proj.view().narrow(0, 16, 16))));
  EXPECT_TRUE(same_bits(layer.value.weight, Tensor::copy_of(in_proj.view().narrow(0, 32, 16))));
  EXPECT_TRUE(same_bits(layer.out_proj->weight, recorded("mha_out_proj_weight")));
  for (const Linear* part : {&layer.query, &layer.key, &layer.value, &*layer.out_proj})
    for (float value : part->bias->values<float>()) EXPECT_EQ(value, 0);
}

INSTANTIATE_TEST_SUITE_P(FiveSeeds, TorchInitialisation,
                         testing::Values(0, 42, 1337, 2147483647, 9223372036854775807));

class TorchMultiheadAttention : public testing::Test {
 protected:
  static Tensor recorded(const std::string& name) { return golden("torch_multihead_attention/" + name); }
  static void expect(const LayerResult& result, const std::string& name) {
    expect_near(result.output, "torch_multihead_attention/" + name + "_out");
    expect_near(result.attention.weights, "torch_multihead_attention/" + name + "_weights");
  }
  const MultiHeadAttention layer =
      MultiHeadAttention::from_in_proj(recorded("in_proj_weight"), recorded("in_proj_bias"),
                                       Linear(recorded("out_proj_weight"), recorded("out_proj_bias")), 4);
  const Tensor x = recorded("x_query");
  const Tensor context = recorded("x_key");
};

TEST_F(TorchMultiheadAttention, Causal) {
  expect(layer.forward(x, {.causal = true, .need = Need::weights}), "causal");
}

TEST_F(TorchMultiheadAttention, Cross) {
  expect(layer.forward(x, context, {.need = Need::weights}), "cross");
}

TEST_F(TorchMultiheadAttention, WithPaddedKeys) {
  // PyTorch's key_padding_mask [B, Lk] marks the keys to leave out; heed's mask marks those to attend to.
  const Tensor padded = recorded("key_padding_mask");
  Tensor allowed(padded.shape(), DType::boolean);
  for (std::size_t i = 0; i < padded.values<bool>().size(); ++i)
    allowed.values<bool>()[i] = !padded.values<bool>()[i];
  const TensorView mask = allowed.view().unsqueeze(1).unsqueeze(1);
  expect(layer.forward(x, context, {.mask = mask, .need = Need::weights}), "padded");
}

class MultiheadNotebook : public testing::TestWithParam<std::string> {};

TEST_P(MultiheadNotebook, GivesTheSameNumbersFromItsFusedWeights) {
  const auto recorded = [](const std::string& name) {
    return golden("004_multihead/" + GetParam() + "/" + name);
  };
  const Linear out_proj(recorded("linear_weight"), recorded("linear_bias"));
  const MultiHeadAttention layer =
      MultiHeadAttention::from_fused_qkv(recorded("qkv_weight"), recorded("qkv_bias"), out_proj, 4);
  const AttentionOptions options{.causal = GetParam() == "decoder", .need = Need::weights};
  const LayerResult result = layer.forward(recorded("x"), options);
  expect_near(result.attention.weights, "004_multihead/" + GetParam() + "/attention");
  expect_near(result.attention.output, "004_multihead/" + GetParam() + "/values");
  expect_near(result.output, "004_multihead/" + GetParam() + "/out_heads_merged");

  // The notebook merges [B, H, L, d] by a plain reshape, which mixes positions instead of merging heads.
  const TensorView mixed = result.attention.output.view().reshape({3, 5, 32});
  expect_near(out_proj.forward(mixed), "004_multihead/" + GetParam() + "/out_as_in_notebook");
}

INSTANTIATE_TEST_SUITE_P(BothHalves, MultiheadNotebook, testing::Values("encoder", "decoder"));

// The notebook follows one word. The layer computes all words, and that word is row `query_index`.
class PayAttentionNotebook : public testing::Test {
 protected:
  static Tensor recorded(const std::string& name) { return golden("000_pay_attention/" + name); }
  const Tensor x = recorded("embedded_sentence");
  const std::int64_t word = recorded("query_index").at<std::int64_t>();
};

TEST_F(PayAttentionNotebook, EmbedsTheSentence) {
  expect_near(Embedding(recorded("embedding_weight")).forward(recorded("token_ids")),
              "000_pay_attention/embedded_sentence");
}

TEST_F(PayAttentionNotebook, SingleHead) {
  const SelfAttention layer(recorded("W_q"), recorded("W_k"), recorded("W_v"));
  const LayerResult result = layer.forward(x, {.need = Need::weights});
  expect_near(result.query.view().select(0, 0).select(0, word), "000_pay_attention/query_x");
  expect_near(result.key.view().select(0, 0), "000_pay_attention/keys");
  expect_near(result.value.view().select(0, 0), "000_pay_attention/values");
  expect_near(result.attention.weights.view().select(0, 0).select(0, word),
              "000_pay_attention/attention_weights_x");
  expect_near(result.output.view().select(0, word), "000_pay_attention/context_vector_x");
}

TEST_F(PayAttentionNotebook, HeadsWithWeightsOfTheirOwn) {
  const MultiHeadAttention layer = MultiHeadAttention::from_heads(
      recorded("multihead_W_q"), recorded("multihead_W_k"), recorded("multihead_W_v"));
  const LayerResult result = layer.forward(x, {.need = Need::weights});
  expect_near(result.query.view().select(1, word), "000_pay_attention/multihead_query_x");
  expect_near(result.key, "000_pay_attention/multihead_keys");
  expect_near(result.value, "000_pay_attention/multihead_values");
  expect_near(result.attention.weights.view().select(1, word),
              "000_pay_attention/multihead_attention_weights_x");
  expect_near(result.attention.output.view().select(1, word), "000_pay_attention/multihead_context_vector_x");
  EXPECT_EQ(result.output.shape(), (heed::Dims{9, 3 * 28}));
}

TEST_F(PayAttentionNotebook, CrossAttention) {
  const MultiHeadAttention layer =
      MultiHeadAttention::from_heads(recorded("W_q").view().unsqueeze(0), recorded("W_k").view().unsqueeze(0),
                                     recorded("W_v").view().unsqueeze(0));
  const LayerResult result = layer.forward(x, recorded("cross_embedded_sentence_2"), {.need = Need::weights});
  expect_near(result.key.view().select(0, 0), "000_pay_attention/cross_keys");
  expect_near(result.value.view().select(0, 0), "000_pay_attention/cross_values");
  expect_near(result.attention.weights.view().select(0, 0).select(0, word),
              "000_pay_attention/cross_attention_weights_x");
  expect_near(result.output.view().select(0, word), "000_pay_attention/cross_context_vector_x");
}

}  // namespace
