// Reading and writing parameters as safetensors files, including PyTorch's.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "golden.hpp"
#include "heed/io/tensors.hpp"
#include "heed/nn/layers.hpp"
#include "io_support.hpp"
#include "support.hpp"

namespace {

using heed::Dims;
using heed::DType;
using heed::Generator;
using heed::Tensor;
using heed::TensorView;
using heed::nn::Embedding;
using heed::nn::Linear;
using heed::nn::load_parameters;
using heed::nn::MultiHeadAttention;
using heed::nn::NamedParameter;
using heed::nn::save_parameters;
using heed::nn::SelfAttention;
using heed::test::golden;
using heed::test::message_of;
using heed::test::relative_error;
using heed::test::same_bits;
using heed::test::TemporaryFolder;

class Parameters : public testing::Test {
 protected:
  void write(const std::vector<std::pair<std::string, TensorView>>& tensors) const {
    heed::io::write_safetensors(path, tensors);
  }
  // The message of load_parameters() about the file, without the path at its beginning.
  std::string refusal(const std::vector<NamedParameter>& parameters) const {
    const std::string message = message_of([&] { load_parameters(path, parameters); });
    EXPECT_TRUE(message.starts_with(path + ": ")) << message;
    return message.substr(path.size() + 2);
  }
  TemporaryFolder folder;
  const std::string path = folder / "layer.safetensors";
  Generator generator{1};
};

TEST_F(Parameters, ComeBackAsTheyWereSaved) {
  MultiHeadAttention saved({.dim = 6, .heads = 2, .kv_heads = 1, .value_dim = 5}, generator);
  save_parameters(path, saved.parameters());
  const heed::io::SafetensorsReader file(path);
  EXPECT_EQ(file.shape("query.weight"), (Dims{6, 6}));
  EXPECT_EQ(file.shape("out_proj.bias"), (Dims{6}));
  MultiHeadAttention loaded({.dim = 6, .heads = 2, .kv_heads = 1, .value_dim = 5}, generator);
  EXPECT_FALSE(same_bits(loaded.value.weight, saved.value.weight));
  load_parameters(path, loaded.parameters());
  const auto before = saved.parameters();
  const auto after = loaded.parameters();
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(same_bits(*after[i].value, *before[i].value)) << before[i].name;
}

TEST_F(Parameters, StayInTheirMemoryWhenTheyAreLoaded) {
  Linear saved(3, 2, true, generator);
  save_parameters(path, saved.parameters());
  Linear layer(3, 2, true, generator);
  const TensorView weight = layer.weight;
  const TensorView bias = *layer.bias;
  load_parameters(path, layer.parameters());
  EXPECT_EQ(layer.weight.view().data(), weight.data());
  EXPECT_EQ(layer.bias->view().data(), bias.data());
  EXPECT_TRUE(same_bits(Tensor::copy_of(weight), saved.weight));
  EXPECT_TRUE(same_bits(Tensor::copy_of(bias), *saved.bias));
}

TEST_F(Parameters, OfSeveralLayersShareAFileUnderPrefixes) {
  Embedding table(5, 4, generator);
  SelfAttention layer(4, 3, 2, generator);
  std::vector<NamedParameter> all = {{"embedding.weight", &table.weight}};
  for (const NamedParameter& parameter : layer.parameters())
    all.push_back({"layers.0." + parameter.name, parameter.value});
  save_parameters(path, all);
  const Tensor kept = layer.key.weight;
  layer.key.weight = Tensor({3, 4});
  load_parameters(path, {all[2]});  // loads one tensor; others in the file are ignored
  EXPECT_EQ(all[2].name, "layers.0.key.weight");
  EXPECT_TRUE(same_bits(layer.key.weight, kept));
}

TEST_F(Parameters, OfTorchMultiheadAttentionAreUnderstood) {
  const auto recorded = [](const std::string& name) { return golden("torch_multihead_attention/" + name); };
  const Tensor in_weight = recorded("in_proj_weight");
  const Tensor in_bias = recorded("in_proj_bias");
  const Tensor out_weight = recorded("out_proj_weight");
  const Tensor out_bias = recorded("out_proj_bias");
  write({{"in_proj_weight", in_weight},
         {"in_proj_bias", in_bias},
         {"out_proj.weight", out_weight},
         {"out_proj.bias", out_bias}});
  MultiHeadAttention layer({.dim = 32, .heads = 4}, generator);
  load_parameters(path, layer.parameters());
  const Tensor output = layer.forward(recorded("x_query"), recorded("x_key")).output;
  EXPECT_TRUE(relative_error(output, recorded("cross_out")) <= 2e-6);

  // With a prefix, as within a larger model.
  write({{"attn.in_proj_weight", in_weight}, {"attn.in_proj_bias", in_bias}});
  MultiHeadAttention other({.dim = 32, .heads = 4, .output_projection = false}, generator);
  std::vector<NamedParameter> prefixed = other.parameters();
  for (NamedParameter& parameter : prefixed) parameter.name = "attn." + parameter.name;
  load_parameters(path, prefixed);
  EXPECT_TRUE(same_bits(other.value.weight, layer.value.weight));
  EXPECT_TRUE(same_bits(*other.key.bias, *layer.key.bias));
}

TEST_F(Parameters, OfTorchMultiheadAttentionWithAContextOfAnotherSizeAreUnderstood) {
  const Tensor q = heed::randn(generator, {6, 6});
  const Tensor k = heed::randn(generator, {6, 4});
  const Tensor v = heed::randn(generator, {6, 4});
  write({{"q_proj_weight", q}, {"k_proj_weight", k}, {"v_proj_weight", v}});
  MultiHeadAttention layer(
      {.dim = 6, .heads = 2, .context_dim = 4, .bias = false, .output_projection = false}, generator);
  load_parameters(path, layer.parameters());
  EXPECT_TRUE(same_bits(layer.query.weight, q));
  EXPECT_TRUE(same_bits(layer.key.weight, k));
  EXPECT_TRUE(same_bits(layer.value.weight, v));
}

TEST_F(Parameters, GivenAHeadAreUnderstood) {
  const Tensor q = heed::randn(generator, {2, 3, 4});
  const Tensor k = heed::randn(generator, {2, 3, 4});
  const Tensor v = heed::randn(generator, {2, 5, 4});
  write({{"query.weight", q}, {"key.weight", k}, {"value.weight", v}});
  MultiHeadAttention layer(
      {.dim = 4, .heads = 2, .head_dim = 3, .value_dim = 5, .bias = false, .output_projection = false},
      generator);
  load_parameters(path, layer.parameters());
  EXPECT_TRUE(same_bits(layer.value.weight, Tensor(v).reshaped({10, 4})));
}

TEST_F(Parameters, AreConvertedFromAnyFloat) {
  const Tensor half = Tensor::copy_of(Tensor::from<float>({0.5f, -2, 3, 1}, {2, 2}), DType::bf16);
  write({{"weight", half}});
  Linear layer(2, 2, false, generator, DType::f64);
  load_parameters(path, layer.parameters());
  EXPECT_EQ(layer.weight.dtype(), DType::f64);
  EXPECT_EQ(layer.weight.at<double>(0, 1), -2);
}

TEST_F(Parameters, ThatDoNotFitAreRefusedAndNothingChanges) {
  Linear layer(3, 2, true, generator);
  const Tensor weight_before = layer.weight;
  const Tensor good({2, 3});
  const Tensor bad({3, 2});
  const Tensor whole({2, 3}, DType::i64);
  const Tensor two({2});
  write({{"weight", good}});
  EXPECT_EQ(refusal(layer.parameters()), "has no tensor bias; it has weight");
  write({{"weight", bad}, {"bias", two}});
  EXPECT_EQ(refusal(layer.parameters()), "tensor weight has shape [3, 2]; [2, 3] is expected");
  write({{"bias", two}, {"weight", whole}});
  EXPECT_EQ(refusal(layer.parameters()), "tensor weight is i64; a floating dtype is expected");
  write({});
  EXPECT_EQ(refusal(layer.parameters()), "has no tensor weight; it has nothing");
  EXPECT_TRUE(same_bits(layer.weight, weight_before));

  MultiHeadAttention attention({.dim = 4, .heads = 2}, generator);
  const Tensor short_rows({8, 4});
  write({{"in_proj_weight", short_rows}});
  EXPECT_EQ(refusal(attention.parameters()), "tensor in_proj_weight has shape [8, 4]; [12, 4] is expected");
}

// Ignoring such a bias would give other numbers than the model that wrote the file.
TEST_F(Parameters, WithABiasThatTheLayerHasNoPlaceForAreRefused) {
  const Tensor weight({2, 3});
  const Tensor bias({2});
  write({{"weight", weight}, {"bias", bias}});
  Linear layer(3, 2, false, generator);
  EXPECT_EQ(refusal(layer.parameters()), "has a tensor bias, which is not a parameter of the layer");

  MultiHeadAttention attention({.dim = 4, .bias = false, .output_projection = false}, generator);
  const Tensor in_weight({12, 4});
  const Tensor in_bias({12});
  write({{"in_proj_weight", in_weight}, {"in_proj_bias", in_bias}});
  EXPECT_EQ(refusal(attention.parameters()),
            "has a tensor in_proj_bias, which is not a parameter of the layer");
  const Tensor added({1, 1, 4});
  write({{"in_proj_weight", in_weight}, {"bias_k", added}});
  EXPECT_EQ(refusal(attention.parameters()), "has a tensor bias_k, which is not a parameter of the layer");
}

}  // namespace
