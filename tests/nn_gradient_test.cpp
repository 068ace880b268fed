// Compares backward() of every layer with central differences of its forward(), in f64.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "heed/nn/layers.hpp"
#include "heed/nn/transformer.hpp"
#include "support.hpp"

namespace {

using namespace heed;
using heed::test::message_of;

constexpr double kStep = 1e-5;
// Central differences have the error h^2 f'''/6 (about 1e-10 here), and rounding of 1e-16 / h = 1e-11 of the
// sums.
constexpr double kTolerance = 1e-7;

double inner_product(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.values<double>().size(); ++i)
    sum += a.values<double>()[i] * b.values<double>()[i];
  return sum;
}

// d value() / d x for each number of x, which value() reads.
Tensor differences(Tensor& x, const std::function<double()>& value) {
  Tensor gradient(x.shape(), DType::f64);
  for (std::size_t i = 0; i < x.values<double>().size(); ++i) {
    double& number = x.values<double>()[i];
    const double kept = number;
    number = kept + kStep;
    const double above = value();
    number = kept - kStep;
    const double below = value();
    number = kept;
    gradient.values<double>()[i] = (above - below) / (2 * kStep);
  }
  return gradient;
}

void expect_close(const Tensor& got, const Tensor& expected, const std::string& name) {
  ASSERT_EQ(got.shape(), expected.shape()) << name;
  double worst = 0;
  for (std::size_t i = 0; i < got.values<double>().size(); ++i) {
    const double difference = std::abs(got.values<double>()[i] - expected.values<double>()[i]);
    worst = difference <= worst ? worst : difference;  // keeps NaN
  }
  EXPECT_TRUE(worst <= kTolerance) << name << " is off by " << worst;
}

// Compares the parameter gradients of backward() with differences of value().
template <class Layer>
void expect_parameter_gradients(Layer& layer, Layer& grads, const std::function<double()>& value) {
  const auto parameters = layer.parameters();
  const auto gradients = grads.parameters();
  ASSERT_EQ(parameters.size(), gradients.size());
  for (std::size_t i = 0; i < parameters.size(); ++i)
    expect_close(*gradients[i].value, differences(*parameters[i].value, value), parameters[i].name);
}

// Adds noise, because biases and norms start at 0 and 1, which could hide faults.
template <class Layer>
void shake(Layer& layer, Generator& generator) {
  for (const nn::NamedParameter& parameter : layer.parameters())
    for (double& value : parameter.value->template values<double>()) value += generator.normal(0, 0.3);
}

class Gradients : public testing::Test {
 protected:
  // Checks all gradients of a layer whose forward pass on x is output(). backward(grad_output, grads) returns
  // the gradient of x.
  template <class Layer, class Output, class Backward>
  void expect_gradients(Layer& layer, Tensor& x, Output output, Backward backward) {
    const Tensor grad = randn(generator, output().shape(), DType::f64);
    const auto value = [&] { return inner_product(output(), grad); };
    Layer grads = zeros_like(layer);
    expect_close(backward(grad, grads), differences(x, value), "x");
    expect_parameter_gradients(layer, grads, value);
  }

  Generator generator{2024};
};

TEST_F(Gradients, OfALinear) {
  for (const bool bias : {false, true}) {
    nn::Linear layer(5, 3, bias, generator, DType::f64);
    Tensor x = randn(generator, {2, 4, 5}, DType::f64);
    expect_gradients(
        layer, x, [&] { return layer.forward(x); },
        [&](const Tensor& grad, nn::Linear& grads) { return layer.backward(grad, x, grads); });
  }
}

TEST_F(Gradients, OfALinearFromStridedInputs) {
  nn::Linear layer(5, 3, true, generator, DType::f64);
  const Tensor x = randn(generator, {5, 4}, DType::f64);
  const Tensor grad = randn(generator, {3, 4}, DType::f64);
  nn::Linear strided = zeros_like(layer);
  nn::Linear plain = zeros_like(layer);
  const Tensor a = layer.backward(grad.view().transpose(0, 1), x.view().transpose(0, 1), strided);
  const Tensor b = layer.backward(Tensor::copy_of(grad.view().transpose(0, 1)),
                                  Tensor::copy_of(x.view().transpose(0, 1)), plain);
  expect_close(a, b, "x");
  expect_close(strided.weight, plain.weight, "weight");
  expect_close(*strided.bias, *plain.bias, "bias");
}

TEST_F(Gradients, AddUp) {
  nn::Linear layer(3, 2, true, generator, DType::f64);
  const Tensor x = randn(generator, {4, 3}, DType::f64);
  const Tensor grad = randn(generator, {4, 2}, DType::f64);
  nn::Linear once = zeros_like(layer);
  nn::Linear twice = zeros_like(layer);
  (void)layer.backward(grad, x, once);
  (void)layer.backward(grad, x, twice);
  (void)layer.backward(grad, x, twice);
  for (std::size_t i = 0; i < 6; ++i)
    EXPECT_NEAR(twice.weight.values<double>()[i], 2 * once.weight.values<double>()[i], 1e-14);
}

TEST_F(Gradients, OfALinearOverNothingAreZero) {
  const nn::Linear layer(Tensor({2, 0}, DType::f64), Tensor({2}, DType::f64));
  nn::Linear grads = zeros_like(layer);
  const Tensor ones = Tensor::from<double>({1, 1, 1, 1, 1, 1}, {3, 2});
  EXPECT_EQ(layer.backward(ones, Tensor({3, 0}, DType::f64), grads).shape(), (Dims{3, 0}));
  EXPECT_EQ(grads.bias->at<double>(0), 3);
  EXPECT_EQ(layer.backward(Tensor({0, 2}, DType::f64), Tensor({0, 0}, DType::f64), grads).count(), 0);
}

TEST_F(Gradients, OfAnEmbedding) {
  nn::Embedding layer(6, 3, generator, DType::f64);
  const Tensor ids = Tensor::from<std::int64_t>({1, 5, 1, 0, 1, 3}, {2, 3});
  const Tensor grad = randn(generator, {2, 3, 3}, DType::f64);
  nn::Embedding grads = zeros_like(layer);
  layer.backward(grad, ids, grads);
  expect_parameter_gradients(layer, grads, [&] { return inner_product(layer.forward(ids), grad); });
}

TEST_F(Gradients, OfALayerNorm) {
  nn::LayerNorm layer(7, DType::f64);
  shake(layer, generator);
  Tensor x = randn(generator, {2, 3, 7}, DType::f64);
  expect_gradients(
      layer, x, [&] { return layer.forward(x).output; },
      [&](const Tensor& grad, nn::LayerNorm& grads) {
        return layer.backward(grad, layer.forward(x), grads);
      });
}

TEST_F(Gradients, OfAGelu) {
  Tensor x = randn(generator, {40}, DType::f64);
  for (double& value : x.values<double>()) value *= 3;
  const Tensor grad = randn(generator, {40}, DType::f64);
  expect_close(nn::gelu_backward(grad, x), differences(x, [&] { return inner_product(nn::gelu(x), grad); }),
               "x");
}

TEST_F(Gradients, OfAnMlp) {
  nn::Mlp layer(4, 9, generator, DType::f64);
  Tensor x = randn(generator, {5, 4}, DType::f64);
  expect_gradients(
      layer, x, [&] { return layer.forward(x).output; },
      [&](const Tensor& grad, nn::Mlp& grads) { return layer.backward(grad, x, layer.forward(x), grads); });
}

TEST_F(Gradients, OfLearnedPositions) {
  nn::LearnedPositions layer(6, 3, generator, DType::f64);
  Tensor x = randn(generator, {2, 4, 3}, DType::f64);
  const Tensor grad = randn(generator, {2, 4, 3}, DType::f64);
  nn::LearnedPositions grads = zeros_like(layer);
  layer.backward(grad, grads);
  expect_parameter_gradients(layer, grads, [&] { return inner_product(layer.forward(x), grad); });
}

TEST_F(Gradients, OfLearnedPositionsAtSomePlaces) {
  nn::LearnedPositions layer(6, 3, generator, DType::f64);
  const Tensor x = randn(generator, {2, 3, 3}, DType::f64), grad = randn(generator, {2, 3, 3}, DType::f64);
  const std::vector<std::int64_t> places{1, 4, 5};
  const Tensor y = layer.forward(x, places);
  for (std::int64_t i = 0; i < 3; ++i)
    EXPECT_EQ(y.at<double>(1, i, 2),
              x.at<double>(1, i, 2) + layer.weight.at<double>(places[static_cast<std::size_t>(i)], 2));
  nn::LearnedPositions grads = zeros_like(layer);
  layer.backward(grad, grads, places);
  expect_parameter_gradients(layer, grads, [&] { return inner_product(layer.forward(x, places), grad); });
}

TEST_F(Gradients, OfACrossEntropy) {
  Tensor logits = randn(generator, {2, 3, 5}, DType::f64);
  const Tensor targets = Tensor::from<std::int64_t>({0, 4, -100, 2, 2, -100}, {2, 3});
  const auto value = [&] { return 1.7 * nn::cross_entropy(logits, targets, -100).loss; };
  const auto result = nn::cross_entropy(logits, targets, -100);
  EXPECT_EQ(result.count, 4);
  expect_close(nn::cross_entropy_backward(1.7, logits, targets, result, -100), differences(logits, value),
               "logits");
}

TEST_F(Gradients, OfASelfAttentionHead) {
  nn::SelfAttention layer(5, 3, 4, generator, DType::f64);
  for (const Dims& shape : {Dims{6, 5}, Dims{2, 6, 5}})
    for (const bool causal : {false, true}) {
      Tensor x = randn(generator, shape, DType::f64);
      const AttentionOptions options{.causal = causal, .need = Need::lse};
      expect_gradients(
          layer, x, [&] { return layer.forward(x, options).output; },
          [&](const Tensor& grad, nn::SelfAttention& grads) {
            return layer.backward(grad, x, layer.forward(x, options), options, grads);
          });
    }
}

TEST_F(Gradients, OfAMultiHeadAttention) {
  for (const std::int64_t kv_heads : {4, 2}) {
    nn::MultiHeadAttention layer({.dim = 8, .heads = 4, .kv_heads = kv_heads, .value_dim = 3}, generator,
                                 DType::f64);
    shake(layer, generator);
    Tensor x = randn(generator, {2, 5, 8}, DType::f64);
    const AttentionOptions options{.causal = true, .window = {2, -1}, .need = Need::lse};
    expect_gradients(
        layer, x, [&] { return layer.forward(x, options).output; },
        [&](const Tensor& grad, nn::MultiHeadAttention& grads) {
          return layer.backward(grad, x, layer.forward(x, options), options, grads);
        });
  }
}

TEST_F(Gradients, OfCrossAttentionWithoutAnOutputProjection) {
  nn::MultiHeadAttention layer({.dim = 6, .heads = 2, .context_dim = 4, .output_projection = false},
                               generator, DType::f64);
  Tensor x = randn(generator, {2, 3, 6}, DType::f64);
  Tensor context = randn(generator, {2, 5, 4}, DType::f64);
  const AttentionOptions options{.need = Need::lse};
  const nn::LayerResult result = layer.forward(x, context, options);
  const Tensor grad = randn(generator, result.output.shape(), DType::f64);
  const auto value = [&] { return inner_product(layer.forward(x, context, options).output, grad); };
  nn::MultiHeadAttention grads = zeros_like(layer);
  const nn::CrossGradients got = layer.backward(grad, x, context, result, options, grads);
  expect_close(got.x, differences(x, value), "x");
  expect_close(got.context, differences(context, value), "context");
  expect_parameter_gradients(layer, grads, value);
}

TEST_F(Gradients, OfATransformerBlock) {
  for (const std::int64_t mlp_dim : {0, 12}) {
    nn::TransformerBlock layer(6, 2, mlp_dim, generator, DType::f64);
    shake(layer, generator);
    Tensor x = randn(generator, {2, 4, 6}, DType::f64);
    expect_gradients(
        layer, x, [&] { return layer.forward(x).output; },
        [&](const Tensor& grad, nn::TransformerBlock& grads) {
          return layer.backward(grad, layer.forward(x), grads);
        });
  }
}

// The batch of 9 is cut into pieces of one and of two sequences.
TEST_F(Gradients, OfALanguageModelsLoss) {
  for (const bool attention_only : {false, true}) {
    nn::LanguageModel model({.vocabulary = 5,
                             .context = 4,
                             .layers = 2,
                             .heads = 2,
                             .model_dim = 4,
                             .attention_only = attention_only},
                            generator, DType::f64);
    shake(model, generator);
    const Tensor tokens = randint(generator, 0, 5, {9, 3});
    Tensor targets = randint(generator, 0, 5, {9, 3});
    targets.at<std::int64_t>(0, 0) = targets.at<std::int64_t>(4, 2) = nn::LanguageModel::kIgnore;
    const auto value = [&] {
      return nn::cross_entropy(model.forward(tokens).logits, targets, nn::LanguageModel::kIgnore).loss;
    };
    nn::LanguageModel grads = zeros_like(model);
    EXPECT_NEAR(model.loss_and_gradients(tokens, targets, grads), value(), 1e-12);
    expect_parameter_gradients(model, grads, value);
  }
}

TEST(LayersThatLearn, SayWhatDoesNotFit) {
  Generator generator(1);
  const nn::Linear linear(3, 2, true, generator);
  nn::Linear no_bias(3, 2, false, generator);
  nn::Linear grads = zeros_like(linear);
  const Tensor x({4, 3});
  const Tensor grad({4, 2});
  EXPECT_EQ(message_of([&] { (void)linear.backward(x, x, grads); }),
            "grad_output is f32 [4, 3]; f32 [4, 2] is expected");
  EXPECT_EQ(message_of([&] { (void)linear.backward(grad, x, no_bias); }),
            "grads.bias is missing; the layer has a bias");
  EXPECT_EQ(message_of([&] { (void)no_bias.backward(grad, x, grads); }),
            "grads.bias is given; the layer has none");

  const nn::SelfAttention head(3, 2, 2, generator);
  nn::SelfAttention head_grads = zeros_like(head);
  const nn::LayerResult without_lse = head.forward(x);
  EXPECT_EQ(message_of([&] { (void)head.backward(grad, x, without_lse, {}, head_grads); }),
            "result.attention.lse has shape [0]; the lse of a forward() with Need::lse is expected");
  nn::MultiHeadAttention plain({.dim = 4, .heads = 2, .output_projection = false}, generator);
  const nn::MultiHeadAttention projected({.dim = 4, .heads = 2}, generator);
  const AttentionOptions options{.need = Need::lse};
  const Tensor y({5, 4});
  const nn::LayerResult both = projected.forward(y, options);
  EXPECT_EQ(message_of([&] { (void)projected.backward(y, y, both, options, plain); }),
            "only one of grads and the layer has an out_proj; both or neither is expected");

  EXPECT_EQ(message_of([&] { nn::LayerNorm(0); }), "dim is 0; at least 1 is expected");
  EXPECT_EQ(message_of([&] { nn::LayerNorm(3, DType::f32, 0); }),
            "epsilon is 0; a finite number above 0 is expected");
  EXPECT_EQ(message_of([&] { (void)nn::LayerNorm(4).forward(x); }),
            "x has shape [4, 3]; [..., 4] is expected");
  const nn::LearnedPositions positions(3, 3, generator);
  EXPECT_EQ(message_of([&] { (void)positions.forward(x); }),
            "x has shape [4, 3]; [L, 3] or [B, L, 3] is expected, L at most 3");
  const Tensor row({1, 3});
  EXPECT_EQ(message_of([&] {
              (void)positions.forward(row, std::vector<std::int64_t>{0, 1});
            }),
            "places has 2 numbers; one for each of the 1 row is expected");
  EXPECT_EQ(message_of([&] { (void)positions.forward(row, std::vector<std::int64_t>{3}); }),
            "places holds 3; numbers from 0 to 2 are expected");
  EXPECT_EQ(message_of([&] { (void)nn::cross_entropy(x, Tensor({3}, DType::i64)); }),
            "targets is i64 [3]; i64 or i32 [4] is expected for logits of shape [4, 3]");
  EXPECT_EQ(message_of([&] {
              (void)nn::cross_entropy(x, Tensor::from<std::int64_t>({0, 1, 2, 3}, {4}));
            }),
            "targets holds 3; numbers from 0 to 2 are expected");
  EXPECT_EQ(message_of([&] {
              (void)nn::cross_entropy(Tensor({2, 0}), Tensor({2}, DType::i64));
            }),
            "logits has shape [2, 0]; [..., V] is expected, V at least 1");
  nn::TransformerBlock with_mlp(4, 2, 8, generator);
  nn::TransformerBlock attention_only(4, 2, 0, generator);
  const nn::BlockResult result = with_mlp.forward(y);
  EXPECT_EQ(message_of([&] { (void)with_mlp.backward(y, result, attention_only); }),
            "grads is a block without an MLP; a block of the same kind is expected");
}

TEST(ALanguageModel, SaysWhatDoesNotFit) {
  Generator generator(1);
  const nn::LanguageModelConfig good{.vocabulary = 4, .context = 3, .layers = 1, .heads = 2, .model_dim = 4};
  const auto refused = [&](auto change) {
    nn::LanguageModelConfig config = good;
    change(config);
    return message_of([&] { nn::check(config); });
  };
  EXPECT_EQ(refused([](auto& c) { c.vocabulary = 0; }),
            "vocabulary is 0; a number from 1 to 1000000 is expected");
  EXPECT_EQ(refused([](auto& c) { c.context = -1; }),
            "context is -1; a number from 1 to 1000000 is expected");
  EXPECT_EQ(refused([](auto& c) { c.layers = 1001; }), "layers is 1001; a number from 1 to 1000 is expected");
  EXPECT_EQ(refused([](auto& c) { c.model_dim = 1 << 20; }),
            "model_dim is 1048576; a number from 1 to 100000 is expected");
  EXPECT_EQ(refused([](auto& c) { c.heads = 5; }), "heads is 5; a number from 1 to 4 is expected");
  EXPECT_EQ(refused([](auto& c) { c.heads = 3; }), "model_dim is 4; a multiple of the 3 heads is expected");
  nn::LanguageModel model(good, generator);
  nn::LanguageModel grads = zeros_like(model);
  const Tensor long_tokens({4}, DType::i64);
  EXPECT_EQ(message_of([&] { (void)model.forward(long_tokens); }),
            "tokens has shape [4]; [L] or [B, L] is expected, L at most 3");
  EXPECT_EQ(
      message_of([&] { (void)model.loss_and_gradients(long_tokens, long_tokens, grads); }),
      "tokens and targets have the shapes [4] and [4]; the same non-empty shape [B, L] is expected for both");
  const Tensor two_tokens({2, 3}, DType::i64);
  EXPECT_EQ(
      message_of([&] { (void)model.loss_pieces(two_tokens, two_tokens, 3, 1, 2); }),
      "begin, end and pieces are 1, 2 and 3; begin <= end <= pieces, from 0 to the batch of 2, is expected");
  nn::LanguageModelConfig deeper = good;
  deeper.layers = 2;
  nn::LanguageModel other(deeper, generator);
  const Tensor tokens({1, 2}, DType::i64);
  const auto result = model.forward(tokens);
  EXPECT_EQ(message_of([&] { model.backward(result.logits, tokens, result, other); }),
            "result and grads have 1 and 2 blocks; the model's 1 are expected");
  for (const bool attention_only : {false, true}) {
    deeper.attention_only = attention_only;
    nn::LanguageModel counted(deeper, generator);
    std::int64_t numbers = 0;
    for (const nn::NamedParameter& parameter : counted.parameters()) numbers += parameter.value->count();
    EXPECT_EQ(nn::parameter_count(deeper), numbers);
  }
}

TEST(CrossEntropy, OfHugeLogitsIsFinite) {
  const Tensor logits = Tensor::from<float>({1e30f, -1e30f, 0, 3e38f, 3e38f, -3e38f}, {2, 3});
  const auto result = nn::cross_entropy(logits, Tensor::from<std::int64_t>({0, 1}, {2}));
  EXPECT_NEAR(result.loss, std::log(2.0) / 2, 1e-6);
}

TEST(CrossEntropy, OfNothingIsZero) {
  const Tensor logits({2, 3});
  const Tensor targets = Tensor::from<std::int64_t>({-1, -1}, {2});
  const auto result = nn::cross_entropy(logits, targets, -1);
  EXPECT_EQ(result.loss, 0);
  EXPECT_EQ(result.count, 0);
  const Tensor gradient = nn::cross_entropy_backward(1, logits, targets, result, -1);
  for (const float value : gradient.values<float>()) EXPECT_EQ(value, 0);
}

TEST(Gelu, IsExactInItsTails) {
  const Tensor x = Tensor::from<double>({-30, -6, 0, 6, 30}, {5});
  const Tensor y = nn::gelu(x);
  EXPECT_EQ(y.at<double>(2), 0);
  EXPECT_EQ(y.at<double>(4), 30);
  // -6 Phi(-6), with Phi(-6) = 9.865876450376946e-10 (tables of the normal distribution).
  EXPECT_NEAR(y.at<double>(1) / -5.9195258702261676e-9, 1, 1e-12);
  EXPECT_TRUE(y.at<double>(0) < 0 && y.at<double>(0) > -1e-190);
}

}  // namespace
