// Compares a small model's loss, gradients and steps with PyTorch's
// (tests/python/make_language_model_golden.py), and tests the parts of an optimiser.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "golden.hpp"
#include "heed/io/tensors.hpp"
#include "heed/nn/optimizer.hpp"
#include "heed/nn/transformer.hpp"
#include "support.hpp"

namespace {

using namespace heed;
using heed::test::message_of;
using heed::test::relative_error;
using heed::test::same_bits;

constexpr double kClip = 0.5;
constexpr double kRates[] = {0.01, 0.02, 0.005};

class TorchLanguageModel : public testing::Test {
 protected:
  TorchLanguageModel() {
    nn::load_parameters(kFile, model.parameters());
    tokens = file.read("tokens");
    targets = file.read("targets");
  }
  const std::string kFile = std::string(HEED_TEST_DATA) + "/language_model.safetensors";
  io::SafetensorsReader file{kFile};
  Generator generator{1};
  nn::LanguageModel model{{.vocabulary = 11, .context = 8, .layers = 2, .heads = 2, .model_dim = 8},
                          generator};
  nn::LanguageModel grads = zeros_like(model);
  Tensor tokens, targets;
};

// Two f32 computations that sum in different orders, relative to the tensor's norm.
constexpr double kTolerance = 3e-6;

TEST_F(TorchLanguageModel, GivesItsLogitsLossAndGradients) {
  EXPECT_TRUE(relative_error(model.forward(tokens).logits, file.read("logits")) <= kTolerance);
  const double loss = model.loss_and_gradients(tokens, targets, grads);
  EXPECT_NEAR(loss, static_cast<double>(file.read("loss").at<float>(0)), 1e-6);
  for (const nn::NamedParameter& gradient : grads.parameters()) {
    const Tensor expected = file.read("grad." + gradient.name);
    // The loss does not depend on the keys' biases, because softmax ignores a constant in all scores of a
    // row. Their gradient is only rounding.
    if (gradient.name.ends_with("key.bias")) {
      for (const float value : gradient.value->values<float>()) EXPECT_TRUE(std::abs(value) <= 1e-7f);
      continue;
    }
    EXPECT_TRUE(relative_error(*gradient.value, expected) <= kTolerance)
        << gradient.name << ": " << relative_error(*gradient.value, expected);
  }
}

TEST_F(TorchLanguageModel, TakesItsFirstStepsWithAdamWAndClipping) {
  nn::AdamW optimizer(model.parameters(), {.weight_decay = 0.1});
  const Tensor lengths = file.read("gradient_lengths");
  for (std::int64_t step = 0; step < 3; ++step) {
    (void)model.loss_and_gradients(tokens, targets, grads);
    const double length = nn::clip_gradients(grads.parameters(), kClip);
    EXPECT_NEAR(length, static_cast<double>(lengths.at<float>(step)), 1e-5);
    optimizer.step(model.parameters(), grads.parameters(), kRates[step]);
  }
  for (const nn::NamedParameter& parameter : model.parameters()) {
    // Adam divides a gradient by its own size. The gradient of the keys' biases is only rounding, and so is
    // their step.
    if (parameter.name.ends_with("key.bias")) continue;
    const Tensor expected = file.read("after." + parameter.name);
    EXPECT_TRUE(relative_error(*parameter.value, expected) <= 1e-4)
        << parameter.name << ": " << relative_error(*parameter.value, expected);
  }
}

TEST_F(TorchLanguageModel, LearnsWithTheSameBitsOnAnyNumberOfThreads) {
  nn::set_blas_threads(1);
  generator.manual_seed(3);
  const Tensor many = randint(generator, 0, 11, {21, 8});
  const double loss = model.loss_and_gradients(many, many, grads, 1);
  for (const int threads : {2, 3, 5, 8, 16}) {
    nn::LanguageModel again = zeros_like(model);
    EXPECT_EQ(model.loss_and_gradients(many, many, again, threads), loss);
    const auto expected = grads.parameters();
    const auto got = again.parameters();
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(same_bits(*got[i].value, *expected[i].value))
          << got[i].name << ", " << threads << " threads";
  }
}

TEST_F(TorchLanguageModel, LooksAtNothingThatComesLater) {
  Tensor changed = tokens;
  changed.at<std::int64_t>(0, 5) = (changed.at<std::int64_t>(0, 5) + 1) % 11;
  const Tensor before = model.forward(tokens).logits;
  const Tensor after = model.forward(changed).logits;
  const auto first = [](const Tensor& logits) {
    return Tensor::copy_of(logits.view().select(0, 0).narrow(0, 0, 5));
  };
  EXPECT_TRUE(same_bits(first(before), first(after)));
}

TEST(AdamW, SaysWhatDoesNotFit) {
  Tensor weight({2, 2});
  Tensor gradient({2, 2});
  Tensor half({2}, DType::f16);
  const std::vector<nn::NamedParameter> parameters = {{"weight", &weight}};
  EXPECT_EQ(message_of([&] { nn::AdamW(parameters, {.beta1 = 1}); }),
            "beta1 is 1; a number in [0, 1) is expected");
  EXPECT_EQ(message_of([&] { nn::AdamW(parameters, {.epsilon = 0}); }),
            "epsilon is 0; a finite number above 0 is expected");
  EXPECT_EQ(message_of([&] { nn::AdamW(parameters, {.weight_decay = -1}); }),
            "weight_decay is -1; a finite number of at least 0 is expected");
  EXPECT_EQ(message_of([&] { nn::AdamW({{"half", &half}}); }), "half is f16; f32 or f64 is expected");
  const std::vector<nn::NamedParameter> null = {{"weight", nullptr}};
  const std::string of_null = "the value of weight is null; a tensor is expected";
  EXPECT_EQ(message_of([&] { nn::AdamW given(null); }), of_null);
  EXPECT_EQ(message_of([&] { (void)nn::clip_gradients(null, 1); }), of_null);
  EXPECT_EQ(message_of([&] { nn::save_parameters("none.safetensors", null); }), of_null);
  EXPECT_EQ(message_of([&] { nn::load_parameters("none.safetensors", null); }), of_null);
  nn::AdamW optimizer(parameters);
  EXPECT_EQ(message_of([&] { optimizer.step(parameters, null, 1); }), of_null);
  EXPECT_EQ(message_of([&] {
              optimizer.step(parameters, {{"weight", &gradient}}, -1);
            }),
            "rate is -1; a finite number of at least 0 is expected");
  EXPECT_EQ(message_of([&] { optimizer.step(parameters, {}, 1); }),
            "parameters has 1 entry and gradients 0; 1 of each are expected");
  EXPECT_EQ(message_of([&] {
              optimizer.step(parameters, {{"other", &gradient}}, 1);
            }),
            "parameter 0 is other; weight is expected");
  Tensor wrong({3});
  EXPECT_EQ(message_of([&] {
              optimizer.step(parameters, {{"weight", &wrong}}, 1);
            }),
            "weight is f32 [3]; f32 [2, 2] is expected");
  EXPECT_EQ(optimizer.steps, 0);
  EXPECT_EQ(optimizer.state().size(), 2u);
}

TEST(Schedule, RisesAndFalls) {
  const nn::Schedule schedule{.peak = 2, .last = 0.5, .warmup = 4, .steps = 104};
  EXPECT_DOUBLE_EQ(schedule.rate(0), 0.5);
  EXPECT_DOUBLE_EQ(schedule.rate(3), 2);
  EXPECT_DOUBLE_EQ(schedule.rate(4), 2);
  EXPECT_DOUBLE_EQ(schedule.rate(54), 1.25);
  EXPECT_DOUBLE_EQ(schedule.rate(104), 0.5);
  EXPECT_DOUBLE_EQ(schedule.rate(1000), 0.5);
  EXPECT_EQ(message_of([&] { (void)schedule.rate(-5); }), "step is -5; 0 or more is expected");
  for (std::int64_t step = 5; step <= 104; ++step) EXPECT_LT(schedule.rate(step), schedule.rate(step - 1));
}

TEST(ClipGradients, BoundsTheLengthOfAllTogether) {
  Tensor a = Tensor::from<float>({3, 0}, {2});
  Tensor b = Tensor::from<double>({4}, {1});
  EXPECT_DOUBLE_EQ(nn::clip_gradients({{"a", &a}, {"b", &b}}, 10), 5);
  EXPECT_EQ(a.at<float>(0), 3);
  EXPECT_DOUBLE_EQ(nn::clip_gradients({{"a", &a}, {"b", &b}}, 1), 5);
  EXPECT_NEAR(static_cast<double>(a.at<float>(0)), 0.6, 1e-7);
  EXPECT_NEAR(b.at<double>(0), 0.8, 1e-15);
  a.at<float>(0) = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isinf(nn::clip_gradients({{"a", &a}, {"b", &b}}, 1)));
  EXPECT_NEAR(b.at<double>(0), 0.8, 1e-15);
  EXPECT_EQ(message_of([&] { (void)nn::clip_gradients({}, 0); }), "most is 0; a number above 0 is expected");
}

}  // namespace
