// The examples print as PyTorch does. PyTorch 2.13 printed the expected texts for the same values.
#include "torch_print.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

#include "heed/tensor.hpp"

namespace {

using heed::Dims;
using heed::DType;
using heed::Tensor;
using lesson::torch_text;

constexpr float kInf = std::numeric_limits<float>::infinity();

// A tensor of 0, 1, 2, … times `step`.
Tensor counting(const Dims& shape, float step) {
  Tensor tensor(shape);
  float next = 0;
  for (float& value : tensor.values<float>()) value = step * next++;
  return tensor;
}

TEST(TorchPrint, WritesOneNumberWithFourDigits) {
  EXPECT_EQ(torch_text(Tensor::from<float>({11.14655f}, {})), "tensor(11.1466)");
  EXPECT_EQ(torch_text(Tensor::from<double>({-0.5}, {1})), "tensor([-0.5000])");
}

TEST(TorchPrint, AlignsWholeNumbersAndTruthValues) {
  EXPECT_EQ(torch_text(Tensor::from<std::int64_t>({1, -20, 300, 4}, {2, 2})),
            "tensor([[  1, -20],\n        [300,   4]])");
  EXPECT_EQ(torch_text(Tensor::from<bool>({true, false}, {2})), "tensor([ True, False])");
}

TEST(TorchPrint, WritesFloatsThatAreAllWholeWithAPoint) {
  EXPECT_EQ(torch_text(Tensor::from<float>({1, -20, 0}, {3})), "tensor([  1., -20.,   0.])");
  EXPECT_EQ(torch_text(Tensor({3})), "tensor([0., 0., 0.])");
}

TEST(TorchPrint, TakesExponentsForWideSpansAndForLargeOrTinyValues) {
  EXPECT_EQ(torch_text(Tensor::from<float>({1e9f, 1}, {2})), "tensor([1.0000e+09, 1.0000e+00])");
  EXPECT_EQ(torch_text(Tensor::from<float>({2000, 1}, {2})), "tensor([2.0000e+03, 1.0000e+00])");
  EXPECT_EQ(torch_text(Tensor::from<float>({0.5f, 5e-5f}, {2})), "tensor([5.0000e-01, 5.0000e-05])");
  EXPECT_EQ(torch_text(Tensor::from<float>({5e-5f}, {1})), "tensor([5.0000e-05])");
  EXPECT_EQ(torch_text(Tensor::from<float>({1.5f, 0.0015f}, {2})), "tensor([1.5000, 0.0015])");
  EXPECT_EQ(torch_text(Tensor::from<float>({1.6f, 0.0015f}, {2})), "tensor([1.6000e+00, 1.5000e-03])");
}

TEST(TorchPrint, LeavesInfinitiesAndNanOutOfTheChoice) {
  EXPECT_EQ(torch_text(Tensor::from<float>({0, -kInf, 0, 0}, {2, 2})),
            "tensor([[0., -inf],\n        [0., 0.]])");
  EXPECT_EQ(torch_text(Tensor::from<float>({0.2036f, -kInf, std::nanf(""), kInf}, {4})),
            "tensor([0.2036,   -inf,    nan,    inf])");
}

TEST(TorchPrint, BreaksLinesAt80Characters) {
  Tensor tensor = counting({25}, 1.5f);
  for (float& value : tensor.values<float>()) value -= 3;
  EXPECT_EQ(torch_text(tensor),
            "tensor([-3.0000, -1.5000,  0.0000,  1.5000,  3.0000,  4.5000,  6.0000,  7.5000,\n"
            "         9.0000, 10.5000, 12.0000, 13.5000, 15.0000, 16.5000, 18.0000, 19.5000,\n"
            "        21.0000, 22.5000, 24.0000, 25.5000, 27.0000, 28.5000, 30.0000, 31.5000,\n"
            "        33.0000])");
}

TEST(TorchPrint, SeparatesTheOuterAxesByEmptyLines) {
  Tensor tensor({2, 3, 2}, DType::i64);
  std::iota(tensor.values<std::int64_t>().begin(), tensor.values<std::int64_t>().end(), 0);
  EXPECT_EQ(torch_text(tensor),
            "tensor([[[ 0,  1],\n         [ 2,  3],\n         [ 4,  5]],\n\n"
            "        [[ 6,  7],\n         [ 8,  9],\n         [10, 11]]])");
}

TEST(TorchPrint, ShowsTheEdgesOfMoreThan1000Elements) {
  EXPECT_EQ(torch_text(counting({1001}, 1)), "tensor([   0.,    1.,    2.,  ...,  998.,  999., 1000.])");
  EXPECT_EQ(torch_text(counting({2, 7, 200}, 0.125f)),
            "tensor([[[0.0000e+00, 1.2500e-01, 2.5000e-01,  ..., 2.4625e+01,\n"
            "          2.4750e+01, 2.4875e+01],\n"
            "         [2.5000e+01, 2.5125e+01, 2.5250e+01,  ..., 4.9625e+01,\n"
            "          4.9750e+01, 4.9875e+01],\n"
            "         [5.0000e+01, 5.0125e+01, 5.0250e+01,  ..., 7.4625e+01,\n"
            "          7.4750e+01, 7.4875e+01],\n"
            "         ...,\n"
            "         [1.0000e+02, 1.0012e+02, 1.0025e+02,  ..., 1.2462e+02,\n"
            "          1.2475e+02, 1.2488e+02],\n"
            "         [1.2500e+02, 1.2512e+02, 1.2525e+02,  ..., 1.4962e+02,\n"
            "          1.4975e+02, 1.4988e+02],\n"
            "         [1.5000e+02, 1.5012e+02, 1.5025e+02,  ..., 1.7462e+02,\n"
            "          1.7475e+02, 1.7488e+02]],\n"
            "\n"
            "        [[1.7500e+02, 1.7512e+02, 1.7525e+02,  ..., 1.9962e+02,\n"
            "          1.9975e+02, 1.9988e+02],\n"
            "         [2.0000e+02, 2.0012e+02, 2.0025e+02,  ..., 2.2462e+02,\n"
            "          2.2475e+02, 2.2488e+02],\n"
            "         [2.2500e+02, 2.2512e+02, 2.2525e+02,  ..., 2.4962e+02,\n"
            "          2.4975e+02, 2.4988e+02],\n"
            "         ...,\n"
            "         [2.7500e+02, 2.7512e+02, 2.7525e+02,  ..., 2.9962e+02,\n"
            "          2.9975e+02, 2.9988e+02],\n"
            "         [3.0000e+02, 3.0012e+02, 3.0025e+02,  ..., 3.2462e+02,\n"
            "          3.2475e+02, 3.2488e+02],\n"
            "         [3.2500e+02, 3.2512e+02, 3.2525e+02,  ..., 3.4962e+02,\n"
            "          3.4975e+02, 3.4988e+02]]])");
}

TEST(TorchPrint, ReadsAViewThroughItsStrides) {
  const Tensor tensor = Tensor::from<std::int64_t>({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(torch_text(tensor.view().transpose(0, 1)), "tensor([[1, 4],\n        [2, 5],\n        [3, 6]])");
}

TEST(TorchPrint, WritesAnEmptyTensorAsBrackets) { EXPECT_EQ(torch_text(Tensor({0})), "tensor([])"); }

}  // namespace
