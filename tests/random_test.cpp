// Compares with vectors that PyTorch 2.13 drew on a CPU (tests/data/golden/torch_generator), and with a few
// of its numbers that are written here.
#include "heed/random.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "golden.hpp"
#include "support.hpp"

namespace {

using heed::Dims;
using heed::DType;
using heed::Generator;
using heed::Tensor;
using heed::test::golden;
using heed::test::message_of;
using heed::test::same_bits;

// PyTorch takes log, sin and cos from vectorised f32 approximations, heed from libm. They differ in the last
// bits.
constexpr double kNormalTolerance = 2e-6;

// The largest |got - expected| / (|expected| + floor) over the elements, or NaN if either has a NaN.
double worst_relative_error(const Tensor& got, const Tensor& expected, double floor = 0) {
  if (got.shape() != expected.shape()) return std::numeric_limits<double>::infinity();
  const Tensor a = Tensor::copy_of(got, DType::f64);
  const Tensor b = Tensor::copy_of(expected, DType::f64);
  double worst = 0;
  for (std::size_t i = 0; i < a.values<double>().size(); ++i) {
    const double wanted = b.values<double>()[i];
    const double error = std::abs(a.values<double>()[i] - wanted) / (std::abs(wanted) + floor);
    if (!(error <= worst)) worst = error;
  }
  return worst;
}

Tensor drawn_uniform(Generator& generator, const Dims& shape, double from, double to) {
  Tensor tensor(shape);
  heed::uniform_(generator, tensor, from, to);
  return tensor;
}

class TorchGenerator : public testing::TestWithParam<std::uint64_t> {
 protected:
  Tensor recorded(const std::string& name) const {
    return golden("torch_generator/seed_" + std::to_string(GetParam()) + "/" + name);
  }
  Generator generator{GetParam()};
};

TEST_P(TorchGenerator, RandHasTheSameBits) {
  for (const std::int64_t n : {1, 5, 15, 16, 17, 31, 32, 100}) {
    generator.manual_seed(GetParam());
    EXPECT_TRUE(same_bits(heed::rand(generator, {n}), recorded("rand_" + std::to_string(n)))) << n;
  }
}

TEST_P(TorchGenerator, UniformHasTheSameBits) {
  EXPECT_TRUE(same_bits(drawn_uniform(generator, {40}, -2, 3), recorded("uniform_-2_3_40")));
}

TEST_P(TorchGenerator, RandintHasTheSameNumbers) {
  EXPECT_TRUE(same_bits(heed::randint(generator, 0, 10, {100}), recorded("randint_0_10_100")));
}

TEST_P(TorchGenerator, RandpermHasTheSameNumbers) {
  EXPECT_TRUE(same_bits(heed::randperm(generator, 50), recorded("randperm_50")));
}

TEST_P(TorchGenerator, BernoulliHasTheSameNumbers) {
  Tensor tensor({64});
  heed::bernoulli_(generator, tensor, 0.3);
  EXPECT_TRUE(same_bits(tensor, recorded("bernoulli_0.3_64")));
}

// Below 16 elements PyTorch draws one number at a time, from there on blocks of 16 with an odd tail. Three
// more numbers show the state that each path leaves: a spare normal, and the count of numbers drawn.
TEST_P(TorchGenerator, RandnFollowsBothPathsAndLeavesTheSameState) {
  for (const std::int64_t n : {1, 5, 15, 16, 17, 31, 32, 100}) {
    generator.manual_seed(GetParam());
    const std::string name = "randn_" + std::to_string(n);
    EXPECT_LE(worst_relative_error(heed::randn(generator, {n}), recorded(name)), kNormalTolerance) << name;
    EXPECT_LE(worst_relative_error(heed::randn(generator, {3}), recorded(name + "_then_randn_3")),
              kNormalTolerance)
        << name;
  }
}

TEST_P(TorchGenerator, RandnOfDoublesIsTheSame) {
  // Both compute in f64, but their libraries differ in the last bits, which cos magnifies near its zeros.
  EXPECT_LE(worst_relative_error(heed::randn(generator, {20}, DType::f64), recorded("randn_double_20")),
            1e-14);
}

TEST_P(TorchGenerator, NormalHasMeanAndDeviation) {
  Tensor tensor({40});
  heed::normal_(generator, tensor, 1, 2);
  // Where the draw nearly cancels the mean, the error is still relative to the terms.
  EXPECT_LE(worst_relative_error(tensor, recorded("normal_1_2_40"), 1), kNormalTolerance);
}

// The draws of PyTorch's default initialisation of layers.
TEST_P(TorchGenerator, DrawsTheWeightsOfAnEmbedding) {
  EXPECT_LE(worst_relative_error(heed::randn(generator, {7, 5}), recorded("embedding_7_5_weight")),
            kNormalTolerance);
}

TEST_P(TorchGenerator, DrawsTheWeightsOfALinearLayer) {
  const double bound = 1 / std::sqrt(24.0);
  EXPECT_TRUE(same_bits(drawn_uniform(generator, {10, 24}, -bound, bound), recorded("linear_24_10_weight")));
  EXPECT_TRUE(same_bits(drawn_uniform(generator, {10}, -bound, bound), recorded("linear_24_10_bias")));
}

TEST_P(TorchGenerator, DrawsTheWeightsOfAMultiheadAttention) {
  // The output projection is a Linear, drawn first (its bias is set to 0, but its draws count). Then comes
  // in_proj_weight from Glorot's uniform distribution, with bound sqrt(6 / (fan_in + fan_out)).
  const double linear_bound = 1 / std::sqrt(16.0);
  const Tensor out_proj = drawn_uniform(generator, {16, 16}, -linear_bound, linear_bound);
  (void)drawn_uniform(generator, {16}, -linear_bound, linear_bound);
  const double glorot_bound = std::sqrt(6.0 / (16 + 48));
  const Tensor in_proj = drawn_uniform(generator, {48, 16}, -glorot_bound, glorot_bound);
  EXPECT_TRUE(same_bits(out_proj, recorded("mha_out_proj_weight")));
  EXPECT_TRUE(same_bits(in_proj, recorded("mha_in_proj_weight")));
}

INSTANTIATE_TEST_SUITE_P(Seeds, TorchGenerator,
                         testing::Values(0u, 42u, 1337u, 2147483647u, 9223372036854775807u),
                         [](const auto& seed) { return std::to_string(seed.param); });

// All following numbers were printed by PyTorch 2.13 for torch.manual_seed(5).

TEST(Random, DoublesAreMadeOf53BitsAndScaledInOneRounding) {
  Generator generator(5);
  EXPECT_TRUE(same_bits(
      heed::rand(generator, {3}, DType::f64),
      Tensor::from<double>({0x1.48b630e2048cep-1, 0x1.09fdfa9a3cd7ap-2, 0x1.717ccba3bb8ecp-2}, {3})));
  Tensor scaled({3}, DType::f64);
  heed::uniform_(generator, scaled, -0.3, 1.7);
  EXPECT_TRUE(same_bits(
      scaled, Tensor::from<double>({0x1.52310b7c06df1p-2, 0x1.db9da518db0bap-3, 0x1.6721a98c3baf1p+0}, {3})));
}

TEST(Random, TheSpareNormalOutlivesACallOfOtherDTypeMeanAndPath) {
  Generator generator(5);
  const Tensor three = heed::randn(generator, {3}, DType::f64);
  EXPECT_LE(
      worst_relative_error(
          three, Tensor::from<double>({-0.48678075071242677, -0.6038215878840039, -0.5580962308236769}, {3})),
      1e-14);
  Tensor two({2});
  heed::normal_(generator, two, 1, 2);  // the first number is the spare
  EXPECT_LE(worst_relative_error(two, Tensor::from<float>({2.3350486755371094f, 0.6051698327064514f}, {2})),
            1e-6);
  Tensor many({18}, DType::f64);
  heed::normal_(generator, many, 1, 2);
  EXPECT_LE(worst_relative_error(
                Tensor::copy_of(many.view().narrow(0, 15, 3)),
                Tensor::from<double>({-2.7591178718864837, 4.305772096058156, -0.6638813313175724}, {3})),
            1e-14);
  EXPECT_EQ(heed::rand(generator, {1}).at<float>(0), 0x1.50e138p-2f);
}

TEST(Random, RandintTakes64BitsFromARangeOf2To28On) {
  const auto draw = [](std::int64_t low, std::int64_t high, std::int64_t count) {
    Generator generator(5);
    return heed::randint(generator, low, high, {count});
  };
  const std::int64_t one = 1;
  EXPECT_TRUE(same_bits(draw(0, (one << 28) - 1, 3),
                        Tensor::from<std::int64_t>({148147046, 236996814, 250105852}, {3})));
  EXPECT_TRUE(
      same_bits(draw(0, one << 28, 3), Tensor::from<std::int64_t>({236996814, 80864957, 220060790}, {3})));
  EXPECT_TRUE(same_bits(
      draw(-(one << 62), (one << 62) + 5, 3),
      Tensor::from<std::int64_t>({-516634799685744434, 2227117907221014200, -798390687407154058}, {3})));
  Generator generator(5);
  (void)heed::randint(generator, 0, one << 62, {3});
  const std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
  const std::int64_t highest = std::numeric_limits<std::int64_t>::max();
  EXPECT_TRUE(same_bits(heed::randint(generator, lowest, highest, {2}),
                        Tensor::from<std::int64_t>({7722008223506294857, -213775812019715356}, {2})));
}

TEST(Random, BernoulliOfDoublesIsTheSame) {
  Generator generator(5);
  Tensor tensor({8}, DType::f64);
  heed::bernoulli_(generator, tensor);
  EXPECT_TRUE(same_bits(tensor, Tensor::from<double>({0, 1, 1, 1, 1, 0, 0, 0}, {8})));
}

TEST(Random, EmptyTensorsDrawNothing) {
  Generator generator(5);
  EXPECT_EQ(heed::randn(generator, {2, 0}).shape(), (Dims{2, 0}));
  EXPECT_EQ(heed::rand(generator, {1}).at<float>(0), 0x1.a916c6p-1f);
  EXPECT_EQ(heed::randperm(generator, 0).count(), 0);
  EXPECT_EQ(heed::randperm(generator, 1).at<std::int64_t>(0), 0);
  EXPECT_EQ(heed::rand(generator, {1}).at<float>(0), 0x1.02467p-3f);
}

TEST(Random, ExtremeProbabilitiesAreCertain) {
  Generator generator;
  Tensor tensor({1000});
  heed::bernoulli_(generator, tensor, 0);
  EXPECT_EQ(std::ranges::count(tensor.values<float>(), 0.0f), 1000);
  heed::bernoulli_(generator, tensor, 1);
  EXPECT_EQ(std::ranges::count(tensor.values<float>(), 1.0f), 1000);
}

TEST(Random, AGeneratorIsAValueThatCanBeCopiedMidway) {
  Generator generator(7);
  (void)generator.normal(0, 1);  // leaves a spare
  Generator twin = generator;
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(generator.normal(1, 2), twin.normal(1, 2));
}

TEST(Random, SaysWhatIsWrongWithACallAndDrawsNothing) {
  Generator generator(5);
  Tensor floats({3});
  Tensor ints({3}, DType::i64);
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::nan("");
  const auto is_in_range = "; from <= to was expected, both of them and their difference finite in f32";
  EXPECT_EQ(message_of([&] { heed::uniform_(generator, floats, 1, 0.5); }),
            std::string("uniform_ got the range from 1 to 0.5") + is_in_range);
  EXPECT_EQ(message_of([&] { heed::uniform_(generator, floats, 0, nan); }),
            std::string("uniform_ got the range from 0 to nan") + is_in_range);
  EXPECT_EQ(message_of([&] { heed::uniform_(generator, floats, -3e38, 3e38); }),
            std::string("uniform_ got the range from -3e+38 to 3e+38") + is_in_range);
  EXPECT_EQ(message_of([&] { heed::normal_(generator, floats, 0, -1); }),
            "normal_ got the mean 0 and the standard deviation -1; finite numbers were expected, the second "
            "one >= 0");
  EXPECT_EQ(message_of([&] { heed::normal_(generator, floats, inf, 1); }),
            "normal_ got the mean inf and the standard deviation 1; finite numbers were expected, the second "
            "one >= 0");
  EXPECT_EQ(message_of([&] { heed::bernoulli_(generator, floats, nan); }),
            "bernoulli_ got the probability nan; a number in [0, 1] was expected");
  EXPECT_EQ(message_of([&] { heed::bernoulli_(generator, floats, 1.5); }),
            "bernoulli_ got the probability 1.5; a number in [0, 1] was expected");
  EXPECT_EQ(message_of([&] { heed::uniform_(generator, ints); }),
            "uniform_ was asked for i64; f32 or f64 was expected");
  EXPECT_EQ(message_of([&] { (void)heed::rand(generator, {3}, DType::bf16); }),
            "rand was asked for bf16; f32 or f64 was expected");
  EXPECT_EQ(message_of([&] { (void)heed::randn(generator, {3}, DType::boolean); }),
            "randn was asked for bool; f32 or f64 was expected");
  EXPECT_EQ(message_of([&] {
              heed::normal_(generator, Tensor({2, 3}).mutable_view().transpose(0, 1));
            }),
            "normal_ got a tensor of shape [3, 2] with strides [1, 3]; a contiguous tensor was expected");
  EXPECT_EQ(message_of([&] { (void)heed::randint(generator, 4, 4, {3}); }),
            "randint got the range [4, 4); low < high was expected");
  EXPECT_EQ(message_of([&] { (void)heed::randperm(generator, -1); }),
            "randperm got n = -1; n >= 0 was expected");
  EXPECT_EQ(heed::rand(generator, {1}).at<float>(0), 0x1.a916c6p-1f);
}

TEST(GeneratorState, GoesOnWhereItWasTaken) {
  heed::Generator generator(5);
  for (int i = 0; i < 700; ++i) (void)generator.random32();
  (void)generator.normal(0, 1);  // keeps the second number as a spare
  const heed::Tensor state = generator.state();
  heed::Generator other(6);
  other.set_state(state);
  EXPECT_EQ(generator.normal(0, 1), other.normal(0, 1));
  for (int i = 0; i < 700; ++i) EXPECT_EQ(generator.random32(), other.random32());
}

TEST(GeneratorState, ThatIsNoneIsRefused) {
  const heed::Generator fresh(5);
  heed::Generator generator(5);
  const auto refused = [&](std::int64_t place, std::int64_t value) {
    heed::Tensor state = generator.state();
    state.at<std::int64_t>(place) = value;
    return message_of([&] { generator.set_state(state); });
  };
  EXPECT_EQ(refused(7, -1), "the generator's state holds -1; words of 32 bits are expected");
  EXPECT_EQ(refused(7, std::int64_t{1} << 32),
            "the generator's state holds 4294967296; words of 32 bits are expected");
  EXPECT_EQ(refused(624, 625),
            "the generator's state has the place 625 and the flag 0; 0 to 624 and 0 or 1 are expected");
  EXPECT_EQ(refused(625, 2),
            "the generator's state has the place 624 and the flag 2; 0 to 624 and 0 or 1 are expected");
  EXPECT_EQ(message_of([&] { generator.set_state(heed::Tensor({627}, DType::i64)); }),
            "the generator's state is zero, which generates only zeros; a nonzero state is expected");
  EXPECT_EQ(message_of([&] { generator.set_state(heed::Tensor({3})); }),
            "the generator's state is f32 [3]; i64 [627] is expected");
  heed::Generator expected = fresh;
  EXPECT_EQ(generator.random32(), expected.random32());
}

}  // namespace
