// Lesson 3: from averaging the previous tokens to a causal attention head (notebook 001).
//
// Shapes: x is [B, T, C], B sequences of T tokens, each a vector of C numbers.
#include <cmath>
#include <iostream>

#include "heed/attention/attention.hpp"
#include "heed/nn/layers.hpp"
#include "heed/random.hpp"
#include "notebook.hpp"

namespace {

using heed::DType;
using heed::Generator;
using heed::Need;
using heed::Tensor;
using heed::TensorView;
using lesson::Notebook;

// Row t of the result is the mean of the rows 0 to t of x.
Tensor for_loop_based(const Tensor& x) {
  Tensor means(x.shape());
  for (std::int64_t b = 0; b < x.size(0); ++b)
    for (std::int64_t t = 0; t < x.size(1); ++t)
      for (std::int64_t c = 0; c < x.size(2); ++c) {
        float sum = 0;
        for (std::int64_t before = 0; before <= t; ++before) sum += x.at<float>(b, before, c);
        means.at<float>(b, t, c) = sum / static_cast<float>(t + 1);
      }
  return means;
}

// Returns the product of a [n, m] and b [m, c]. linear(a, W) multiplies by W transposed, so it gets b
// transposed.
Tensor matmul(const TensorView& a, const TensorView& b) { return heed::nn::linear(a, b.transpose(0, 1)); }

// Returns an [n, n] matrix of ones, or of ones on and below the diagonal and zeros above it.
Tensor ones(std::int64_t n, bool lower_triangle = false) {
  Tensor matrix({n, n});
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) matrix.at<float>(i, j) = lower_triangle && j > i ? 0.0f : 1.0f;
  return matrix;
}

// Returns ones on and below the diagonal, each row divided by its sum. Multiplying by it takes running means.
Tensor averaging_matrix(std::int64_t n) {
  Tensor matrix = ones(n, true);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j <= i; ++j) matrix.at<float>(i, j) /= static_cast<float>(i + 1);
  return matrix;
}

// Computes the same means with one matrix product per sequence.
Tensor matrix_based(const Tensor& x) {
  const Tensor weights = averaging_matrix(x.size(1));
  Tensor means(x.shape());
  for (std::int64_t b = 0; b < x.size(0); ++b)
    heed::copy(matmul(weights, x.view().select(0, b)), means.mutable_view().select(0, b));
  return means;
}

// Computes the same means with attention. Queries and keys are zero, so every score is 0. The causal mask
// sets the scores of later tokens to -inf, and softmax shares the weight equally among the rest.
Tensor softmax_based(const Tensor& x) {
  const Tensor nothing({x.size(0), x.size(1), 1});
  return heed::attention(nothing, nothing, x, {.causal = true}).output;
}

// Compares as torch.allclose does: |a - b| <= 1e-8 + 1e-5 |b|.
bool all_close(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape()) return false;
  for (std::size_t i = 0; i < a.values<float>().size(); ++i) {
    const float expected = b.values<float>()[i];
    if (!(std::abs(a.values<float>()[i] - expected) <= 1e-8f + 1e-5f * std::abs(expected))) return false;
  }
  return true;
}

void average_with_loops(Notebook& notebook) {
  Notebook::section("Each token takes the mean of itself and all before it");
  Generator generator(1337);  // torch.manual_seed(1337)
  const Tensor x = randn(generator, {4, 8, 2});
  const Tensor x_bag_of_words = for_loop_based(x);
  notebook.keep("x", x);
  notebook.keep("x_bag_of_words", x_bag_of_words);
  notebook.print("x[0]", x.view().select(0, 0));
  notebook.print("x_bag_of_words[0]", x_bag_of_words.view().select(0, 0));
}

void average_with_a_matrix(Notebook& notebook) {
  Generator generator(42);
  const Tensor b = Tensor::copy_of(randint(generator, 0, 10, {3, 2}), DType::f32);

  Notebook::section("A product with ones sums the columns");
  const Tensor a = ones(3);
  const Tensor c = matmul(a, b);
  notebook.print("a", a);
  notebook.print("b", b);
  notebook.print("ones_times_b", c);

  Notebook::section("With a lower triangle, only the rows so far");
  const Tensor new_a = ones(3, true);
  const Tensor new_c = matmul(new_a, b);
  notebook.print("new_a", new_a);
  notebook.print("tril_times_b", new_c);

  Notebook::section("With rows that sum to 1, their mean");
  const Tensor newer_a = averaging_matrix(3);
  const Tensor newer_c = matmul(newer_a, b);
  notebook.print("averaging", newer_a);
  notebook.print("averaged_b", newer_c);
}

void compare_the_three_ways(Notebook& notebook, Generator& generator) {
  Notebook::section("The loop and the matrix agree");
  const Tensor x_matrix = randn(generator, {4, 8, 2});
  const Tensor y1 = for_loop_based(x_matrix);
  const Tensor y2 = matrix_based(x_matrix);
  notebook.keep("x_matrix", x_matrix);
  notebook.keep("y_matrix", y2);
  notebook.print("y1[0]", y1.view().select(0, 0));
  notebook.print("y2[0]", y2.view().select(0, 0));
  std::cout << "Tensors are equal: " << std::boolalpha << all_close(y1, y2) << '\n';

  Notebook::section("So does the softmax of a mask");
  const Tensor x_softmax = randn(generator, {4, 8, 2});
  const Tensor loops = for_loop_based(x_softmax);
  const Tensor product = matrix_based(x_softmax);
  const Tensor softmax = softmax_based(x_softmax);
  notebook.keep("x_softmax", x_softmax);
  notebook.keep("y_softmax", softmax);
  notebook.print("loops[0]", loops.view().select(0, 0));
  notebook.print("product[0]", product.view().select(0, 0));
  notebook.print("softmax[0]", softmax.view().select(0, 0));
  std::cout << "Tensors are equal: " << (all_close(loops, product) && all_close(loops, softmax)) << '\n';
}

void attend(Notebook& notebook, Generator& generator) {
  Notebook::section("A causal head: queries and keys decide what the weights are");
  const std::int64_t channels = 32;
  const std::int64_t head_size = 16;
  const Tensor x = randn(generator, {4, 8, channels});
  heed::nn::SelfAttention head(channels, head_size, head_size, generator);  // draws query, key, value
  notebook.keep("x_head", x);
  notebook.keep("query_weight", head.query.weight);
  notebook.keep("key_weight", head.key.weight);
  notebook.keep("value_weight", head.value.weight);

  const auto result = head.forward(x, {.causal = true, .need = Need::weights});
  const TensorView weights = result.attention.weights.view().select(1, 0);  // the only head
  notebook.keep("head_weights", weights);
  notebook.print_shape("head_out", result.output);
  notebook.print("head_weights[0]", weights.select(0, 0));
}

void causal_head(Notebook& notebook) {
  average_with_loops(notebook);
  average_with_a_matrix(notebook);
  Generator generator(42);
  compare_the_three_ways(notebook, generator);
  attend(notebook, generator);
}

}  // namespace

int main(int argc, char** argv) { return lesson::run(argc, argv, causal_head); }
