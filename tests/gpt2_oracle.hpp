// A small GPT-2 with random weights, its folder, and its results computed from the formulas in f64, one
// matrix after another (Radford et al. 2019; docs in src/model/families/gpt2.cpp).
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "heed/io/tensors.hpp"
#include "heed/random.hpp"
#include "heed/tensor.hpp"
#include "io_support.hpp"

namespace heed::test {

struct Numbers {
  std::int64_t rows = 0, columns = 0;
  std::vector<double> values;
  Numbers() = default;
  Numbers(std::int64_t r, std::int64_t c) : rows(r), columns(c), values(static_cast<std::size_t>(r * c)) {}
  double& operator()(std::int64_t i, std::int64_t j) {
    return values[static_cast<std::size_t>(i * columns + j)];
  }
  double operator()(std::int64_t i, std::int64_t j) const {
    return values[static_cast<std::size_t>(i * columns + j)];
  }
};

inline Numbers product(const Numbers& a, const Numbers& b) {
  Numbers c(a.rows, b.columns);
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t k = 0; k < a.columns; ++k)
      for (std::int64_t j = 0; j < b.columns; ++j) c(i, j) += a(i, k) * b(k, j);
  return c;
}

struct Gpt2 {
  std::int64_t layers = 2, heads = 3, dim = 12, context = 32, vocabulary = 29;
  std::map<std::string, Tensor> tensors{};

  [[nodiscard]] std::int64_t head_dim() const { return dim / heads; }

  void add(const std::string& name, const Dims& shape, Generator& generator, double around, double spread) {
    Tensor tensor(shape);
    normal_(generator, tensor, around, spread);
    tensors[name] = std::move(tensor);
  }

  /// Draws weights that make attention uneven, with no trivial norm or bias.
  void fill(std::uint64_t seed) {
    Generator generator(seed);
    const auto norm = [&](const std::string& name) {
      add(name + ".weight", {dim}, generator, 1, 0.2);
      add(name + ".bias", {dim}, generator, 0, 0.2);
    };
    const auto linear = [&](const std::string& name, std::int64_t inputs, std::int64_t outputs) {
      add(name + ".weight", {inputs, outputs}, generator, 0, 0.4);
      add(name + ".bias", {outputs}, generator, 0, 0.2);
    };
    add("wte.weight", {vocabulary, dim}, generator, 0, 1);
    add("wpe.weight", {context, dim}, generator, 0, 0.5);
    for (std::int64_t n = 0; n < layers; ++n) {
      const std::string at = "h." + std::to_string(n) + ".";
      norm(at + "ln_1");
      linear(at + "attn.c_attn", dim, 3 * dim);
      linear(at + "attn.c_proj", dim, dim);
      norm(at + "ln_2");
      linear(at + "mlp.c_fc", dim, 4 * dim);
      linear(at + "mlp.c_proj", 4 * dim, dim);
    }
    norm("ln_f");
  }

  void write(const std::string& folder) const {
    std::vector<std::pair<std::string, TensorView>> views;
    for (const auto& [name, tensor] : tensors) views.emplace_back(name, tensor);
    io::write_safetensors(folder + "/model.safetensors", views);
    std::string config = R"({"model_type": "gpt2", "n_layer": )" + std::to_string(layers);
    config += ", \"n_head\": " + std::to_string(heads) + ", \"n_embd\": " + std::to_string(dim);
    config += ", \"n_positions\": " + std::to_string(context);
    config += ", \"vocab_size\": " + std::to_string(vocabulary) + "}";
    write_file(folder + "/config.json", config);
  }

  [[nodiscard]] Numbers numbers(const std::string& name) const {
    const Tensor& tensor = tensors.at(name);
    Numbers made(tensor.rank() == 2 ? tensor.size(0) : 1, tensor.size(-1));
    for (std::size_t i = 0; i < made.values.size(); ++i)
      made.values[i] = static_cast<double>(tensor.values<float>()[i]);
    return made;
  }
};

struct Gpt2Layer {
  Numbers stream;                ///< [L, D], the layer's input
  std::vector<Numbers> weights;  ///< [L, L] for each head
  Numbers heads;                 ///< [L, H d]
  Numbers attention, mlp;        ///< [L, D], added to the stream
};

struct Gpt2Run {
  std::vector<Gpt2Layer> layers;
  Numbers stream;  ///< after the last layer
  Numbers hidden, logits;
};

inline Numbers normed(const Gpt2& model, const std::string& name, const Numbers& x) {
  const Numbers weight = model.numbers(name + ".weight"), bias = model.numbers(name + ".bias");
  Numbers y(x.rows, x.columns);
  for (std::int64_t i = 0; i < x.rows; ++i) {
    double mean = 0, variance = 0;
    for (std::int64_t j = 0; j < x.columns; ++j) mean += x(i, j) / static_cast<double>(x.columns);
    for (std::int64_t j = 0; j < x.columns; ++j)
      variance += (x(i, j) - mean) * (x(i, j) - mean) / static_cast<double>(x.columns);
    for (std::int64_t j = 0; j < x.columns; ++j)
      y(i, j) = weight(0, j) * (x(i, j) - mean) / std::sqrt(variance + 1e-5) + bias(0, j);
  }
  return y;
}

inline Numbers affine(const Gpt2& model, const std::string& name, const Numbers& x) {
  Numbers y = product(x, model.numbers(name + ".weight"));
  const Numbers bias = model.numbers(name + ".bias");
  for (std::int64_t i = 0; i < y.rows; ++i)
    for (std::int64_t j = 0; j < y.columns; ++j) y(i, j) += bias(0, j);
  return y;
}

inline Numbers sum_of(Numbers a, const Numbers& b) {
  for (std::size_t i = 0; i < a.values.size(); ++i) a.values[i] += b.values[i];
  return a;
}

/// The weights [L, L] of a head, from queries, keys and values side by side.
inline Numbers causal_weights(const Gpt2& model, const Numbers& fused, std::int64_t head) {
  const std::int64_t d = model.head_dim();
  Numbers weights(fused.rows, fused.rows);
  for (std::int64_t i = 0; i < fused.rows; ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j <= i; ++j) {
      double score = 0;
      for (std::int64_t k = head * d; k < (head + 1) * d; ++k) score += fused(i, k) * fused(j, model.dim + k);
      sum += weights(i, j) = std::exp(score / std::sqrt(static_cast<double>(d)));
    }
    for (std::int64_t j = 0; j <= i; ++j) weights(i, j) /= sum;
  }
  return weights;
}

inline Numbers gelu(Numbers x) {
  for (double& one : x.values)
    one = one / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (one + 0.044715 * one * one * one)));
  return x;
}

/// Gets the outputs of a layer's heads [L, H d], and may change them.
using ChangeHeads = std::function<void(std::int64_t layer, Numbers& heads)>;

inline Gpt2Run run_of(const Gpt2& model, const std::vector<std::int64_t>& ids,
                      const ChangeHeads& change = {}) {
  const auto length = static_cast<std::int64_t>(ids.size());
  const Numbers tokens = model.numbers("wte.weight"), positions = model.numbers("wpe.weight");
  Gpt2Run run;
  run.stream = Numbers(length, model.dim);
  for (std::int64_t i = 0; i < length; ++i)
    for (std::int64_t j = 0; j < model.dim; ++j)
      run.stream(i, j) = tokens(ids[static_cast<std::size_t>(i)], j) + positions(i, j);
  for (std::int64_t n = 0; n < model.layers; ++n) {
    const std::string at = "h." + std::to_string(n) + ".";
    Gpt2Layer layer;
    layer.stream = run.stream;
    const Numbers fused = affine(model, at + "attn.c_attn", normed(model, at + "ln_1", run.stream));
    layer.heads = Numbers(length, model.dim);
    for (std::int64_t head = 0; head < model.heads; ++head) {
      layer.weights.push_back(causal_weights(model, fused, head));
      for (std::int64_t i = 0; i < length; ++i)
        for (std::int64_t k = head * model.head_dim(); k < (head + 1) * model.head_dim(); ++k)
          for (std::int64_t j = 0; j <= i; ++j)
            layer.heads(i, k) += layer.weights.back()(i, j) * fused(j, 2 * model.dim + k);
    }
    if (change) change(n, layer.heads);
    layer.attention = affine(model, at + "attn.c_proj", layer.heads);
    run.stream = sum_of(run.stream, layer.attention);
    const Numbers inner = gelu(affine(model, at + "mlp.c_fc", normed(model, at + "ln_2", run.stream)));
    layer.mlp = affine(model, at + "mlp.c_proj", inner);
    run.stream = sum_of(run.stream, layer.mlp);
    run.layers.push_back(std::move(layer));
  }
  run.hidden = normed(model, "ln_f", run.stream);
  Numbers unembedding(model.dim, model.vocabulary);
  for (std::int64_t i = 0; i < model.vocabulary; ++i)
    for (std::int64_t j = 0; j < model.dim; ++j) unembedding(j, i) = tokens(i, j);
  run.logits = product(run.hidden, unembedding);
  return run;
}

}  // namespace heed::test
