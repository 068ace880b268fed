#include "heed/nn/layers.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "nn/gemm.hpp"
#include "support.hpp"

namespace {

using heed::Dims;
using heed::DType;
using heed::Generator;
using heed::Tensor;
using heed::TensorView;
using heed::detail::Matrix;
using heed::nn::Embedding;
using heed::nn::Linear;
using heed::nn::linear;
using heed::test::message_of;

double number_at(const TensorView& view, std::vector<std::int64_t> index) {
  std::int64_t at = 0;
  for (int axis = 0; axis < view.rank(); ++axis)
    at += view.strides()[axis] * index[static_cast<std::size_t>(axis)];
  if (view.dtype() == DType::f64) return static_cast<const double*>(view.data())[at];
  return static_cast<double>(static_cast<const float*>(view.data())[at]);
}

// Calls visit(index) for every index of the shape, in row-major order.
template <class Visit>
void for_each_index(const Dims& shape, Visit visit) {
  std::vector<std::int64_t> index(static_cast<std::size_t>(shape.size()), 0);
  for (std::int64_t left = heed::element_count(shape); left > 0; --left) {
    visit(index);
    for (int axis = shape.size() - 1; axis >= 0; --axis) {
      auto& i = index[static_cast<std::size_t>(axis)];
      if (++i < shape[axis]) break;
      i = 0;
    }
  }
}

// Compares with x weight^T + bias in f64, one element at a time, each with its own bound. A sum of `in`
// products and a bias, in any order, has an error of at most (in + 1) u times the sum of their absolute
// values (Higham 2002, 3.1). (in + 2) also covers second-order terms.
void expect_linear(const Tensor& got, const TensorView& x, const TensorView& weight, const Tensor* bias) {
  const double unit = got.dtype() == DType::f64 ? 0x1p-53 : 0x1p-24;
  const std::int64_t in = weight.shape()[1];
  Dims shape = x.shape();
  shape[shape.size() - 1] = weight.shape()[0];
  ASSERT_EQ(got.shape(), shape);
  for_each_index(shape, [&](const std::vector<std::int64_t>& index) {
    const std::int64_t row = index.back();
    long double sum = bias == nullptr ? 0 : number_at(*bias, {row});
    long double size = std::fabs(sum);
    for (std::int64_t k = 0; k < in; ++k) {
      std::vector<std::int64_t> at = index;
      at.back() = k;
      const long double product = static_cast<long double>(number_at(x, at)) * number_at(weight, {row, k});
      sum += product;
      size += std::fabs(product);
    }
    const long double bound = static_cast<long double>(in + 2) * unit * size;
    const long double error = std::fabs(number_at(got, index) - sum);
    ASSERT_TRUE(error <= bound) << "x " << to_string(x.shape()) << " strides " << to_string(x.strides())
                                << ", weight " << to_string(weight.shape()) << ": error "
                                << static_cast<double>(error) << ", bound " << static_cast<double>(bound);
  });
}

template <class T>
class Gemm : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(Gemm, Reals);

// Every layout of both factors, at sizes that include a single row, column or inner element.
TYPED_TEST(Gemm, MultipliesEveryLayoutOfItsFactors) {
  using T = TypeParam;
  constexpr std::int64_t kSizes[] = {1, 2, 7};
  constexpr std::int64_t kPad = 3;  // padding between lines
  Generator generator(1);
  for (const std::int64_t m : kSizes)
    for (const std::int64_t n : kSizes)
      for (const std::int64_t k : kSizes)
        for (const int layout : {0, 1, 2, 3}) {
          const Tensor left = heed::randn(generator, {(m + kPad) * (k + kPad)}, heed::dtype_of_v<T>);
          const Tensor right = heed::randn(generator, {(n + kPad) * (k + kPad)}, heed::dtype_of_v<T>);
          const T* a_data = left.values<T>().data();
          const T* b_data = right.values<T>().data();
          const Matrix<const T> a = (layout & 1) != 0 ? Matrix<const T>{a_data, m, k, 1, m + kPad}
                                                      : Matrix<const T>{a_data, m, k, k + kPad, 1};
          const Matrix<const T> b = (layout & 2) != 0 ? Matrix<const T>{b_data, k, n, 1, k + kPad}
                                                      : Matrix<const T>{b_data, k, n, n + kPad, 1};
          std::vector<T> c(static_cast<std::size_t>(m * (n + 1)), T{5});
          heed::detail::gemm<T>(a, b, T{1}, {c.data(), m, n, n + 1});
          for (std::int64_t i = 0; i < m; ++i)
            for (std::int64_t j = 0; j < n; ++j) {
              double sum = 5;
              double size = 5;
              for (std::int64_t l = 0; l < k; ++l) {
                const double product = static_cast<double>(a_data[i * a.row_stride + l * a.column_stride]) *
                                       static_cast<double>(b_data[l * b.row_stride + j * b.column_stride]);
                sum += product;
                size += std::abs(product);
              }
              const double bound = static_cast<double>(k + 2) * size * (sizeof(T) == 4 ? 0x1p-24 : 0x1p-52);
              const double error =
                  std::abs(static_cast<double>(c[static_cast<std::size_t>(i * (n + 1) + j)]) - sum);
              ASSERT_TRUE(error <= bound) << m << "x" << n << "x" << k << " layout " << layout;
            }
          for (std::int64_t i = 0; i < m; ++i)  // gaps between the rows of c are not written
            ASSERT_EQ(c[static_cast<std::size_t>(i * (n + 1) + n)], T{5});
        }
}

TYPED_TEST(Gemm, WithoutBetaDoesNotReadWhatWasThere) {
  using T = TypeParam;
  const T a[] = {1, 2};
  const T b[] = {3, 4};
  T c[] = {std::numeric_limits<T>::quiet_NaN()};
  heed::detail::gemm<T>({a, 1, 2, 2}, {b, 2, 1, 1}, T{0}, {c, 1, 1, 1});
  EXPECT_EQ(c[0], T{11});
}

TEST(GemmRange, SizesBeyondTheBlasAreRefusedBeforeAnythingIsRead) {
  constexpr std::int64_t kBig = std::int64_t{1} << 31;
  const Matrix<const float> one{nullptr, 1, 1, 1, 1};
  const auto message = [](const Matrix<const float>& a, const Matrix<const float>& b) {
    float c = 0;
    return message_of([&] { heed::detail::gemm<float>(a, b, 0, {&c, a.rows, b.columns, b.columns}); });
  };
  EXPECT_EQ(message({nullptr, 1, kBig, kBig, 1}, {nullptr, kBig, 1, 1, 1}),
            "a matrix product has 2147483648 inner elements; at most 2147483647 are expected for a BLAS");
  EXPECT_EQ(message({nullptr, kBig, 1, 1, 1}, one),
            "a matrix product has 2147483648 rows; at most 2147483647 are expected for a BLAS");
  EXPECT_EQ(message(one, {nullptr, 1, kBig, kBig, 1}),
            "a matrix product has 2147483648 columns; at most 2147483647 are expected for a BLAS");
  EXPECT_EQ(message({nullptr, 2, 1, kBig, 1}, one),
            "a matrix product has 2147483648 elements from one line to the next; at most 2147483647 are "
            "expected for a BLAS");
}

TEST(LinearFunction, TakesInputsOfAnyRank) {
  Generator generator(2);
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor weight = heed::randn(generator, {5, 4}, dtype);
    const Tensor bias = heed::randn(generator, {5}, dtype);
    for (const Dims& shape : {Dims{4}, Dims{3, 4}, Dims{2, 3, 4}, Dims{2, 1, 3, 4}, Dims{2, 2, 1, 3, 4}}) {
      const Tensor x = heed::randn(generator, shape, dtype);
      expect_linear(linear(x, weight), x, weight, nullptr);
      expect_linear(linear(x, weight, bias.view()), x, weight, &bias);
    }
  }
}

TEST(LinearFunction, ReadsAnyStrides) {
  Generator generator(3);
  const Tensor base = heed::randn(generator, {4, 6, 8});
  const Tensor square = heed::randn(generator, {8, 8});
  const float* data = base.values<float>().data();
  const TensorView views[] = {
      base.view().select(0, 1).transpose(0, 1).narrow(1, 0, 4),  // columns are contiguous
      base.view().narrow(2, 1, 4),                               // rows have gaps between them
      base.view().narrow(1, 0, 3).narrow(2, 0, 4),               // the leading axes cannot be merged
      base.view().transpose(0, 2),                               // the last axis has size 4 and a stride
      base.view().narrow(2, 0, 4).transpose(0, 1),
      TensorView(data, {5, 4}, {0, 1}),  // one row, repeated
      TensorView(data, {5, 4}, {8, 0}),  // one number per row, repeated
      TensorView(data, {5, 4}, {1, 1}),  // rows overlap
      TensorView(data + 60, {5, 4}, {-8, -2}),
      TensorView(data, {4}, {3}),
      TensorView(data, {1, 4}, {0, 7}),
  };
  const TensorView weights[] = {
      square.view().narrow(1, 0, 4).narrow(0, 0, 3),
      square.view().narrow(0, 0, 4).transpose(0, 1),  // stored transposed
      TensorView(square.values<float>().data() + 63, {3, 4}, {-8, -2}),
  };
  for (const TensorView& x : views)
    for (const TensorView& weight : weights) {
      ASSERT_EQ(x.shape().back(), 4);
      expect_linear(linear(x, weight), x, weight, nullptr);
    }
  const TensorView reversed(square.values<float>().data() + 6, {3}, {-3});
  const Tensor bias = Tensor::copy_of(reversed);
  expect_linear(linear(base.view().narrow(2, 0, 4), weights[0], reversed), base.view().narrow(2, 0, 4),
                weights[0], &bias);
}

TEST(LinearFunction, OfNothingGivesTheBiasOrZeros) {
  const Tensor empty({3, 0});
  const Tensor weight({2, 0});
  const Tensor bias = Tensor::from<float>({1, 2}, {2});
  const Tensor zeros = linear(empty, weight);
  for (float value : zeros.values<float>()) EXPECT_EQ(value, 0);
  EXPECT_EQ(linear(empty, weight, bias.view()).at<float>(2, 1), 2);
  EXPECT_EQ(linear(Tensor({0, 4}), Tensor({2, 4})).shape(), (Dims{0, 2}));
}

TEST(LinearFunction, AWrongCallIsAnErrorThatNamesTheArgument) {
  const Tensor x({3, 4});
  const Tensor weight({2, 4});
  EXPECT_EQ(message_of([&] {
              (void)linear(Tensor({3, 5}), weight);
            }),
            "x has shape [3, 5]; [..., 4] is expected for a weight of shape [2, 4]");
  EXPECT_EQ(message_of([&] {
              (void)linear(x, Tensor({2, 4, 1}));
            }),
            "weight has shape [2, 4, 1]; [out, in] is expected");
  EXPECT_EQ(message_of([&] {
              (void)linear(Tensor({3, 4}, DType::f64), weight);
            }),
            "x is f64; f32, the dtype of weight, is expected");
  EXPECT_EQ(message_of([&] {
              (void)linear(Tensor({3, 4}, DType::bf16), Tensor({2, 4}, DType::bf16));
            }),
            "weight is bf16; f32 or f64 is expected");
  EXPECT_EQ(message_of([&] { (void)linear(x, weight, Tensor({4}).view()); }),
            "bias has shape [4]; [2] is expected for a weight of shape [2, 4]");
  EXPECT_EQ(message_of([&] { (void)linear(x, weight, Tensor({2}, DType::f64).view()); }),
            "bias is f64; f32, the dtype of weight, is expected");
}

TEST(LinearLayer, NamesItsParametersAndStaysInItsInterval) {
  Generator generator(4);
  Linear layer(9, 5, true, generator, DType::f64);
  const auto named = layer.parameters();
  ASSERT_EQ(named.size(), 2u);
  EXPECT_EQ(named[0].name, "weight");
  EXPECT_EQ(named[1].name, "bias");
  EXPECT_EQ(layer.weight.shape(), (Dims{5, 9}));
  for (double value : layer.weight.values<double>()) EXPECT_TRUE(std::abs(value) <= 1.0 / 3);
  for (double value : layer.bias->values<double>()) EXPECT_TRUE(std::abs(value) <= 1.0 / 3);
  EXPECT_EQ(Linear(9, 5, false, generator).parameters().size(), 1u);
}

TEST(LinearLayer, AWrongPartIsAnErrorThatNamesIt) {
  Generator generator;
  EXPECT_EQ(message_of([&] { Linear(0, 5, true, generator); }), "in is 0; at least 1 is expected");
  EXPECT_EQ(message_of([&] { Linear(5, -1, true, generator); }), "out is -1; at least 1 is expected");
  EXPECT_EQ(message_of([&] { Linear(Tensor({4})); }), "weight has shape [4]; [out, in] is expected");
  EXPECT_EQ(message_of([&] { Linear(Tensor({4, 2}, DType::i64)); }), "weight is i64; f32 or f64 is expected");
  EXPECT_EQ(message_of([&] {
              Linear(Tensor({4, 2}), Tensor({2}));
            }),
            "bias has shape [2]; [4] is expected for a weight of shape [4, 2]");
}

TEST(EmbeddingLayer, LooksUpARowForEachId) {
  Embedding table(Tensor::from<float>({0, 1, 10, 11, 20, 21}, {3, 2}));
  const Tensor ids = Tensor::from<std::int64_t>({2, 0, 2, 1}, {2, 2});
  const Tensor vectors = table.forward(ids);
  ASSERT_EQ(vectors.shape(), (Dims{2, 2, 2}));
  const float expected[] = {20, 21, 0, 1, 20, 21, 10, 11};
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(vectors.values<float>()[i], expected[i]);
  // Any strides, i32 too, and an empty list of ids.
  const Tensor narrow = Tensor::from<std::int32_t>({1, 2}, {2});
  const TensorView reversed(narrow.values<std::int32_t>().data() + 1, {2}, {-1});
  EXPECT_EQ(table.forward(reversed).at<float>(0, 0), 20);
  EXPECT_EQ(table.forward(Tensor({0}, DType::i64)).shape(), (Dims{0, 2}));
  EXPECT_EQ(table.parameters().at(0).name, "weight");
}

TEST(EmbeddingLayer, AWrongCallIsAnErrorThatNamesTheArgument) {
  Generator generator;
  const Embedding table(3, 2, generator);
  EXPECT_EQ(message_of([&] {
              (void)table.forward(Tensor::from<std::int64_t>({0, 3}, {2}));
            }),
            "ids holds 3; numbers from 0 to 2 are expected");
  EXPECT_EQ(message_of([&] { (void)table.forward(Tensor::from<std::int32_t>({-1}, {1})); }),
            "ids holds -1; numbers from 0 to 2 are expected");
  EXPECT_EQ(message_of([&] { (void)table.forward(Tensor({2})); }), "ids is f32; i64 or i32 is expected");
  EXPECT_EQ(message_of([&] {
              (void)table.forward(Tensor({1, 1, 1, 1, 1}, DType::i64));
            }),
            "ids has shape [1, 1, 1, 1, 1]; at most 4 axes are expected");
  EXPECT_EQ(message_of([&] { Embedding(0, 2, generator); }), "count is 0; at least 1 is expected");
  EXPECT_EQ(message_of([&] { Embedding(2, 0, generator); }), "dim is 0; at least 1 is expected");
  EXPECT_EQ(message_of([&] { Embedding(Tensor({3})); }), "weight has shape [3]; [count, dim] is expected");
}

TEST(Heads, AreCutApartAndPutTogetherAgain) {
  Generator generator(5);
  const Tensor x = heed::randn(generator, {2, 3, 8});
  const Tensor heads = heed::nn::split_heads(x, 4);
  ASSERT_EQ(heads.shape(), (Dims{2, 4, 3, 2}));
  for_each_index(heads.shape(), [&](const std::vector<std::int64_t>& i) {
    EXPECT_EQ(number_at(heads, i), number_at(x, {i[0], i[2], i[1] * 2 + i[3]}));
  });
  const Tensor merged = heed::nn::merge_heads(heads);
  ASSERT_EQ(merged.shape(), x.shape());
  for (std::size_t i = 0; i < 48; ++i) EXPECT_EQ(merged.values<float>()[i], x.values<float>()[i]);
  // A single sentence, read through strides.
  const Tensor one = heed::nn::split_heads(x.view().select(0, 1), 2);
  EXPECT_EQ(one.shape(), (Dims{2, 3, 4}));
  const Tensor back = heed::nn::merge_heads(heads.view().transpose(0, 0).select(0, 1));
  EXPECT_EQ(back.shape(), (Dims{3, 8}));
  EXPECT_EQ(back.at<float>(2, 7), x.at<float>(1, 2, 7));
}

TEST(Heads, AWrongShapeIsAnError) {
  EXPECT_EQ(message_of([] {
              (void)heed::nn::split_heads(Tensor({3, 8}), 3);
            }),
            "x has shape [3, 8]; [..., L, 3 d], of at most 4 axes, is expected for 3 heads");
  EXPECT_EQ(message_of([] {
              (void)heed::nn::split_heads(Tensor({1, 1, 1, 3, 8}), 2);
            }),
            "x has shape [1, 1, 1, 3, 8]; [..., L, 2 d], of at most 4 axes, is expected for 2 heads");
  EXPECT_EQ(message_of([] {
              (void)heed::nn::split_heads(Tensor({3, 8}), 0);
            }),
            "heads is 0; at least 1 is expected");
  EXPECT_EQ(message_of([] {
              (void)heed::nn::merge_heads(Tensor({3, 8}));
            }),
            "x has shape [3, 8]; [..., H, L, d] is expected");
}

}  // namespace
