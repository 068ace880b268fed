// Lesson 6: a causal head learns. It trains the head of lesson 3 to predict the next character of a text.
//
// Shapes: x is [B, T, C], B sequences of T characters, each a vector of C numbers.
//
//   6_learn [TEXT.txt]
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "heed/nn/layers.hpp"
#include "heed/nn/optimizer.hpp"
#include "heed/nn/transformer.hpp"
#include "heed/random.hpp"

namespace {

using heed::AttentionOptions;
using heed::DType;
using heed::Generator;
using heed::Need;
using heed::Tensor;

constexpr std::int64_t kBatch = 16;
constexpr std::int64_t kContext = 32;   // T
constexpr std::int64_t kChannels = 32;  // C
constexpr std::int64_t kSteps = 1200;
const AttentionOptions kCausal{.causal = true, .need = Need::lse};  // backward() needs the log-sum-exp

// Texts that every Debian system has, the shorter one first.
constexpr const char* kTexts[] = {"/usr/share/common-licenses/Apache-2.0",
                                  "/usr/share/common-licenses/GPL-3"};

std::string text_in(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string text_to_learn(int argc, char** argv) {
  if (argc > 1) {
    std::string text = text_in(argv[1]);
    if (static_cast<std::int64_t>(text.size()) <= kContext)
      throw std::runtime_error(std::string(argv[1]) +
                               " is missing or too short; a text of some pages is expected");
    return text;
  }
  for (const char* path : kTexts)
    if (std::string text = text_in(path); !text.empty()) {
      std::cout << "The text is " << path << ".\n";
      return text;
    }
  throw std::runtime_error(
      "no licence text lies in /usr/share/common-licenses; name a text: 6_learn TEXT.txt");
}

// The characters (bytes) of the text and their ids.
struct Alphabet {
  explicit Alphabet(const std::string& text) : letters(text) {
    std::sort(letters.begin(), letters.end());
    letters.erase(std::unique(letters.begin(), letters.end()), letters.end());
  }
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(letters.size()); }
  [[nodiscard]] std::int64_t id(char letter) const { return static_cast<std::int64_t>(letters.find(letter)); }

  std::string letters;
};

// A language model. Characters and positions become vectors, and one causal head looks back over them. A
// linear layer turns its output into logits of the next character.
struct Model {
  Model(std::int64_t letters, Generator& generator)
      : embedding(letters, kChannels, generator),
        positions(kContext, kChannels, generator),
        head(kChannels, kChannels, kChannels, generator),
        out(kChannels, letters, true, generator) {}

  [[nodiscard]] std::vector<heed::nn::NamedParameter> parameters() {
    std::vector<heed::nn::NamedParameter> all;
    const auto add = [&](const std::string& name, auto& layer) {
      for (const auto& parameter : layer.parameters())
        all.push_back({name + "." + parameter.name, parameter.value});
    };
    add("embedding", embedding);
    add("positions", positions);
    add("head", head);
    add("out", out);
    return all;
  }

  heed::nn::Embedding embedding;
  heed::nn::LearnedPositions positions;
  heed::nn::SelfAttention head;
  heed::nn::Linear out;
};

// The intermediate results of the forward pass; the backward pass needs them.
struct Forward {
  Tensor x;                      // [B, T, C]
  heed::nn::LayerResult looked;  // the head's result; its output is [B, T, C]
  Tensor logits;                 // [B, T, letters]
};

Forward forward(const Model& model, const Tensor& ids) {
  Forward f;
  f.x = model.positions.forward(model.embedding.forward(ids));
  f.looked = model.head.forward(f.x, kCausal);
  f.logits = model.out.forward(f.looked.output);
  return f;
}

// Runs the forward pass, then the backward pass. Adds the gradients to `grads` and returns the loss.
double learn(const Model& model, const Tensor& ids, const Tensor& next, Model& grads) {
  const Forward f = forward(model, ids);
  const auto loss = heed::nn::cross_entropy(f.logits, next);
  const Tensor grad_logits = heed::nn::cross_entropy_backward(1, f.logits, next, loss);
  const Tensor grad_looked = model.out.backward(grad_logits, f.looked.output, grads.out);
  const Tensor grad_x = model.head.backward(grad_looked, f.x, f.looked, kCausal, grads.head);
  model.positions.backward(grad_x, grads.positions);
  model.embedding.backward(grad_x, ids, grads.embedding);
  return loss.loss;
}

// Draws passages from anywhere in the text, and for each character the one that follows it.
void draw_batch(const std::string& text, const Alphabet& alphabet, Generator& generator, Tensor& ids,
                Tensor& next) {
  const Tensor starts = randint(generator, 0, static_cast<std::int64_t>(text.size()) - kContext, {kBatch});
  for (std::int64_t b = 0; b < kBatch; ++b)
    for (std::int64_t t = 0; t < kContext; ++t) {
      const auto at = static_cast<std::size_t>(starts.at<std::int64_t>(b) + t);
      ids.at<std::int64_t>(b, t) = alphabet.id(text[at]);
      next.at<std::int64_t>(b, t) = alphabet.id(text[at + 1]);
    }
}

// Draws an index from softmax(logits).
std::size_t draw(std::span<const float> logits, Generator& generator) {
  std::vector<double> upto;
  double sum = 0;
  for (const float logit : logits) upto.push_back(sum += std::exp(static_cast<double>(logit)));
  const double drawn = rand(generator, {1}, DType::f64).at<double>(0) * sum;
  const auto found = std::upper_bound(upto.begin(), upto.end() - 1, drawn);
  return static_cast<std::size_t>(found - upto.begin());
}

// Generates a text: each character is drawn from softmax(logits).
std::string write(const Model& model, const Alphabet& alphabet, int length) {
  Generator generator(7);
  std::string text(1, alphabet.letters.front());
  while (static_cast<int>(text.size()) < length) {
    const std::string seen = text.substr(text.size() - std::min<std::size_t>(text.size(), kContext));
    Tensor ids({static_cast<std::int64_t>(seen.size())}, DType::i64);
    for (std::size_t i = 0; i < seen.size(); ++i) ids.values<std::int64_t>()[i] = alphabet.id(seen[i]);
    const Forward f = forward(model, ids);
    const auto logits = f.logits.values<float>().last(static_cast<std::size_t>(alphabet.size()));
    text += alphabet.letters[draw(logits, generator)];
  }
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

void train(const std::string& text) {
  const Alphabet alphabet(text);
  Generator generator(1337);
  Model model(alphabet.size(), generator);
  Model grads = model;
  heed::nn::AdamW optimizer(model.parameters());
  const heed::nn::Schedule schedule{.peak = 1e-2, .warmup = 50, .steps = kSteps};
  Tensor ids({kBatch, kContext}, DType::i64);
  Tensor next({kBatch, kContext}, DType::i64);
  double sum = 0;
  std::cout << text.size() << " characters, " << alphabet.size()
            << " different ones.\n\nuntrained:  " << write(model, alphabet, 70) << '\n';
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    for (const auto& gradient : grads.parameters()) *gradient.value = Tensor(gradient.value->shape());
    draw_batch(text, alphabet, generator, ids, next);
    sum += learn(model, ids, next, grads);
    heed::nn::clip_gradients(grads.parameters(), 1);
    optimizer.step(model.parameters(), grads.parameters(), schedule.rate(step - 1));
    if (step % (kSteps / 6) != 0) continue;
    std::cout << "\nstep " << step << ", loss " << sum / (kSteps / 6) << ":  " << write(model, alphabet, 70)
              << '\n';
    sum = 0;
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    heed::nn::set_blas_threads(1);
    train(text_to_learn(argc, argv));
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
