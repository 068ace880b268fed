// Lesson 1: a sentence becomes vectors, and one word attends to all words (notebook 003).
#include <iostream>
#include <string>
#include <vector>

#include "heed/attention/attention.hpp"
#include "heed/io/vocabulary.hpp"
#include "heed/nn/layers.hpp"
#include "heed/random.hpp"
#include "notebook.hpp"

namespace {

using heed::Generator;
using heed::Need;
using heed::Tensor;
using heed::TensorView;
using heed::nn::linear;
using lesson::Notebook;

// Returns the words of the sentence as vectors [6, 16].
Tensor embed_sentence(Notebook& notebook) {
  const std::string sentence = "Life is short, eat dessert first";

  Notebook::section("The dictionary: the words of the sentence, sorted and numbered");
  const heed::Vocabulary dc(sentence);
  Notebook::print(dc);

  Notebook::section("The sentence as numbers");
  const Tensor token_ids = dc.encode(heed::split_words(sentence));
  notebook.print("token_ids", token_ids);

  Notebook::section("Each number is a row of the embedding table");
  Generator generator(123);  // torch.manual_seed(123)
  const heed::nn::Embedding embed(dc.size(), 16, generator);
  notebook.keep("embedding_weight", embed.weight);
  Tensor embedded_sentence = embed.forward(token_ids);
  notebook.print("embedded_sentence", embedded_sentence);
  notebook.print_shape("embedded_sentence", embedded_sentence);
  return embedded_sentence;
}

void input_sentence(Notebook& notebook) {
  const Tensor embedded_sentence = embed_sentence(notebook);

  Notebook::section("Three matrices make queries, keys and values of the vectors");
  const std::int64_t d = embedded_sentence.size(1);
  const std::int64_t d_q = 24, d_k = 24, d_v = 28;  // queries and keys meet in a dot product, so d_q = d_k
  Generator generator(123);
  const Tensor w_query = rand(generator, {d_q, d});
  const Tensor w_key = rand(generator, {d_k, d});
  const Tensor w_value = rand(generator, {d_v, d});
  notebook.print_shape("W_query", w_query);
  notebook.print_shape("W_key", w_key);
  notebook.print_shape("W_value", w_value);

  Notebook::section("The second word, 'is', asks: its query, key and value");
  const TensorView x_2 = embedded_sentence.view().select(0, 1);
  // linear(x, W) is W x for a vector, and the same for each row of a matrix. No transposing is needed.
  const Tensor query_2 = linear(x_2, w_query);
  const Tensor key_2 = linear(x_2, w_key);
  const Tensor value_2 = linear(x_2, w_value);
  notebook.print_shape("query_2", query_2);
  notebook.print_shape("key_2", key_2);
  notebook.print_shape("value_2", value_2);

  Notebook::section("The keys and values of all words");
  const Tensor keys = linear(embedded_sentence, w_key);
  const Tensor values = linear(embedded_sentence, w_value);
  notebook.print_shape("keys", keys);
  notebook.print_shape("values", values);

  Notebook::section("How well the query fits a key is their dot product; with all keys at once, q K^T");
  const TensorView key_4 = keys.view().select(0, 4);
  notebook.print_shape("keys[4]", key_4);
  const Tensor omega_24 = linear(query_2, key_4.unsqueeze(0));
  notebook.print("omega_24", omega_24.view().select(0, 0));
  notebook.print("query_2", query_2);
  notebook.print("keys[4]", key_4);
  const Tensor omega_2 = linear(query_2, keys);
  notebook.print("omega_2", omega_2);

  Notebook::section("Scaled by 1/sqrt(d_k), softmax makes weights of them; they mix the values");
  const auto result = heed::attention(query_2.view().unsqueeze(0), keys, values, {.need = Need::weights});
  notebook.print("attention_weights_2", result.weights.view().select(0, 0));
  notebook.print("context_vector_2", result.output.view().select(0, 0));
}

}  // namespace

int main(int argc, char** argv) { return lesson::run(argc, argv, input_sentence); }
