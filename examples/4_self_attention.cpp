// Lesson 4: scaled dot-product attention as a function, self-attention as a layer (notebook 002).
//
// The notebook sets no seed, so its numbers cannot be reproduced. The shapes can, and the rows still sum to
// 1.
#include <cstdio>
#include <iostream>

#include "heed/attention/attention.hpp"
#include "heed/nn/layers.hpp"
#include "heed/random.hpp"
#include "notebook.hpp"

namespace {

using heed::Generator;
using heed::Need;
using heed::Tensor;
using heed::TensorView;
using lesson::Notebook;

// Returns the sums over the last axis.
Tensor row_sums(const TensorView& rows) {
  Tensor sums({rows.size(0)});
  for (std::int64_t i = 0; i < rows.size(0); ++i)
    for (std::int64_t j = 0; j < rows.size(1); ++j) sums.at<float>(i) += rows.at<float>(i, j);
  return sums;
}

void scaled_dot_product(Notebook& notebook, Generator& generator) {
  Notebook::section("softmax(Q K^T / sqrt(d_k)) V, and its weights");
  const std::int64_t batch_size = 1, seq_len = 4, d_k = 8;
  const Tensor query = randn(generator, {batch_size, seq_len, d_k});
  const Tensor key = randn(generator, {batch_size, seq_len, d_k});
  const Tensor value = randn(generator, {batch_size, seq_len, d_k});

  // The scale defaults to 1/sqrt(d_k). attention() reads a tensor of rank 3 as [heads, tokens, d_k]. Here the
  // first axis counts sequences. The result is the same, because heads, like sequences, do not see each
  // other.
  const auto attended = heed::attention(query, key, value, {.need = Need::weights});
  notebook.print_shape("Q", query);
  notebook.print_shape("K", key);
  notebook.print_shape("V", value);
  notebook.keep("output", attended.output);
  notebook.print_shape("attn_weights", attended.weights);
  std::cout << "Each row should sum to 1:\n";
  const TensorView first = attended.weights.view().select(0, 0);
  notebook.print("attn_weights[0]", first);
  notebook.print("sums", row_sums(first));
}

void self_attention_layer(Notebook& notebook, Generator& generator) {
  Notebook::section("Self-attention: queries, keys and values are made from one input");
  const std::int64_t dimension = 64, seq_len = 10, batch_size = 2;
  const heed::nn::SelfAttention self_attn(dimension, dimension, dimension, generator);
  const Tensor x = randn(generator, {batch_size, seq_len, dimension});
  const auto result = self_attn.forward(x, {.need = Need::weights});
  const TensorView attn_weights = result.attention.weights.view().select(1, 0);  // the only head

  notebook.print_shape("layer_input", x);
  notebook.print_shape("layer_output", result.output);
  notebook.print_shape("layer_weights", attn_weights);
  std::cout << "Attention weights for the first sequence, first position:\n";
  const TensorView first = attn_weights.select(0, 0).select(0, 0);
  notebook.print("layer_weights[0, 0]", first);
  std::printf("Sum: %.3f (should be 1.0)\n", static_cast<double>(row_sums(first.unsqueeze(0)).at<float>(0)));
}

void self_attention(Notebook& notebook) {
  Generator generator(2);
  scaled_dot_product(notebook, generator);
  self_attention_layer(notebook, generator);
}

}  // namespace

int main(int argc, char** argv) { return lesson::run(argc, argv, self_attention); }
