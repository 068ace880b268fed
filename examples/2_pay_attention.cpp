// Lesson 2: one head, several heads, and attention from one sentence to another (notebook 000).
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

constexpr std::int64_t kDim = 16;  // d: the length of a word's vector
constexpr std::int64_t kKeyDim = 24;
constexpr std::int64_t kValueDim = 28;
constexpr std::int64_t kHeads = 3;

struct Sentence {
  std::vector<std::string> words;
  heed::Vocabulary dictionary;
  Tensor embedded;  // [words, kDim]
};

struct Weights {
  Tensor query, key, value;  // [d_k, d], [d_k, d], [d_v, d]
};

Sentence embed_sentence(Notebook& notebook, Generator& generator) {
  const std::string sentence = "the quick brown fox jumps over a lazy dog";
  const std::vector<std::string> words = heed::split_words(sentence);

  Notebook::section("The dictionary, and the sentence as numbers");
  const heed::Vocabulary dictionary(sentence);
  Notebook::print(dictionary);
  const Tensor token_ids = dictionary.encode(words);
  notebook.print("token_ids", token_ids);

  Notebook::section("The sentence as vectors");
  const heed::nn::Embedding embed(dictionary.size(), kDim, generator);
  notebook.keep("embedding_weight", embed.weight);
  Tensor embedded = embed.forward(token_ids);
  notebook.print("embedded_sentence", embedded);
  return {words, dictionary, std::move(embedded)};
}

// Draws the word whose query is computed. The index is drawn from the positions of the sentence, so it names
// a word of the sentence. The notebook takes the right vector, but it looks the index up in the *dictionary*,
// where the same number belongs to another word.
std::int64_t choose_word(Notebook& notebook, Generator& generator, const Sentence& sentence) {
  Notebook::section("A word is drawn to ask the others");
  const Tensor drawn = randint(generator, 0, sentence.embedded.size(0), {1});
  notebook.keep("query_index", drawn.view().select(0, 0));
  const std::int64_t x = drawn.at<std::int64_t>(0);
  const std::string& word = sentence.words[static_cast<std::size_t>(x)];
  std::cout << "The input word for which we want to compute the attention is: '" << word << "', word " << x
            << " of the sentence, with dictionary index " << sentence.dictionary.id(word) << '\n'
            << "(The notebook says: '" << sentence.dictionary.word(x) << "' with dictionary index " << x
            << ".)\n";
  notebook.print("embedding", sentence.embedded.view().select(0, x));
  return x;
}

// Returns the query of the word; the cross-attention below uses it.
Tensor single_head(Notebook& notebook, const Weights& weights, const Tensor& embedded, std::int64_t index) {
  Notebook::section("Its query, key and value");
  const TensorView x = embedded.view().select(0, index);
  Tensor query_x = linear(x, weights.query);
  const Tensor key_x = linear(x, weights.key);
  const Tensor value_x = linear(x, weights.value);
  notebook.print("query_x", query_x);
  notebook.print("key_x", key_x);
  notebook.print("value_x", value_x);
  notebook.print_shape("query_x", query_x);
  notebook.print_shape("key_x", key_x);
  notebook.print_shape("value_x", value_x);

  Notebook::section("Keys and values of all words");
  const Tensor keys = linear(embedded, weights.key);
  const Tensor values = linear(embedded, weights.value);
  notebook.print_shape("keys", keys);
  notebook.print_shape("values", values);

  Notebook::section("Scores before scaling: the dot product of the query with every key");
  const Tensor omega_x = linear(query_x, keys);
  notebook.print("omega_x", omega_x);
  notebook.print_shape("omega_x", omega_x);

  Notebook::section("softmax(omega / sqrt(d_k)), and the values mixed by these weights");
  const auto result = heed::attention(query_x.view().unsqueeze(0), keys, values, {.need = Need::weights});
  const TensorView attention_weights_x = result.weights.view().select(0, 0);
  const TensorView context_vector_x = result.output.view().select(0, 0);
  notebook.print("attention_weights_x", attention_weights_x);
  notebook.print_shape("attention_weights_x", attention_weights_x);
  notebook.print("context_vector_x", context_vector_x);
  notebook.print_shape("context_vector_x", context_vector_x);
  return query_x;
}

void multi_head(Notebook& notebook, Generator& generator, const Tensor& embedded, std::int64_t index) {
  Notebook::section("Multi-head: each head has matrices of its own");
  const Tensor w_q = randn(generator, {kHeads, kKeyDim, kDim});
  const Tensor w_k = randn(generator, {kHeads, kKeyDim, kDim});
  const Tensor w_v = randn(generator, {kHeads, kValueDim, kDim});
  notebook.print_shape("multihead_W_q", w_q);
  notebook.print_shape("multihead_W_k", w_k);
  notebook.print_shape("multihead_W_v", w_v);

  // One word gives the query (one row of x); all words give keys and values (the context).
  const auto layer = heed::nn::MultiHeadAttention::from_heads(w_q, w_k, w_v);
  const TensorView x = embedded.view().narrow(0, index, 1);
  const auto result = layer.forward(x, embedded, {.need = Need::weights});
  notebook.print_shape("multihead_query_x", result.query.view().select(1, 0));

  Notebook::section("Every head reads the same sentence");
  // The notebook copies the sentence once per head. A view with stride 0 has the same shape without a copy.
  const TensorView stacked_inputs = embedded.view().transpose(0, 1).expand({kHeads, kDim, embedded.size(0)});
  notebook.print_shape("stacked_inputs", stacked_inputs);
  notebook.print_shape("multihead_keys.transposed", result.key.view().transpose(1, 2));
  notebook.print_shape("multihead_values.transposed", result.value.view().transpose(1, 2));
  notebook.print_shape("multihead_keys", result.key);
  notebook.print_shape("multihead_values", result.value);

  Notebook::section("Scores, weights and context of each head");
  const auto unscaled =
      heed::attention(result.query, result.key, result.value, {.scale = 1, .need = Need::scores});
  notebook.print_shape("omega_multihead_x", unscaled.scores.view().select(1, 0));
  notebook.print_shape("multihead_attention_weights_x", result.attention.weights.view().select(1, 0));
  notebook.print_shape("multihead_context_vector_x", result.attention.output.view().select(1, 0));
}

void cross_attention(Notebook& notebook, Generator& generator, const Weights& weights,
                     const Tensor& query_x) {
  Notebook::section("Cross-attention: keys and values come from a second sentence of 8 words");
  const Tensor embedded_sentence_2 = rand(generator, {8, kDim});
  notebook.keep("cross_embedded_sentence_2", embedded_sentence_2);
  const Tensor keys = linear(embedded_sentence_2, weights.key);
  const Tensor values = linear(embedded_sentence_2, weights.value);
  notebook.print_shape("cross_keys", keys);
  notebook.print_shape("cross_values", values);

  // Nothing else changes. There is one weight for each word of the second sentence.
  notebook.print_shape("cross_omega_x", linear(query_x, keys));
  const auto result = heed::attention(query_x.view().unsqueeze(0), keys, values, {.need = Need::weights});
  notebook.print_shape("cross_attention_weights_x", result.weights.view().select(0, 0));
  notebook.print_shape("cross_context_vector_x", result.output.view().select(0, 0));
}

void pay_attention(Notebook& notebook) {
  Generator generator(0);  // torch.manual_seed(0), called once; all draws below use it in this order
  const Sentence sentence = embed_sentence(notebook, generator);
  const Weights weights{randn(generator, {kKeyDim, kDim}), randn(generator, {kKeyDim, kDim}),
                        randn(generator, {kValueDim, kDim})};
  notebook.keep("W_q", weights.query);
  notebook.keep("W_k", weights.key);
  notebook.keep("W_v", weights.value);
  const std::int64_t x = choose_word(notebook, generator, sentence);
  const Tensor query_x = single_head(notebook, weights, sentence.embedded, x);
  multi_head(notebook, generator, sentence.embedded, x);
  cross_attention(notebook, generator, weights, query_x);
}

}  // namespace

int main(int argc, char** argv) { return lesson::run(argc, argv, pay_attention); }
