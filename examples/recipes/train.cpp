// Training: a causal head learns to tell the token before each token, and shows where it looks.
#include <cstdint>
#include <cstdio>
#include <heed/nn.hpp>
#include <heed/random.hpp>
#include <string>
#include <vector>

constexpr std::int64_t kBatch = 16, kLength = 12, kSymbols = 8, kDim = 32;
const heed::AttentionOptions kOptions{.causal = true, .need = heed::Need::lse | heed::Need::weights};

struct Model {
  explicit Model(heed::Generator& generator)
      : embedding(kSymbols, kDim, generator),
        positions(kLength, kDim, generator),
        head(kDim, kDim, kDim, generator),
        out(kDim, kSymbols, true, generator) {}

  std::vector<heed::nn::NamedParameter> parameters() {
    std::vector<heed::nn::NamedParameter> all;
    const auto add = [&](const std::string& name, auto& layer) {
      for (const auto& one : layer.parameters()) all.push_back({name + "." + one.name, one.value});
    };
    add("embedding", embedding), add("positions", positions), add("head", head), add("out", out);
    return all;
  }

  heed::nn::Embedding embedding;
  heed::nn::LearnedPositions positions;
  heed::nn::SelfAttention head;
  heed::nn::Linear out;
};

int main() {
  heed::nn::set_blas_threads(1);
  heed::Generator generator(1337);
  Model model(generator);
  Model grads = model;
  heed::nn::AdamW optimizer(model.parameters());
  for (int step = 0; step <= 300; ++step) {
    const heed::Tensor ids = heed::randint(generator, 0, kSymbols, {kBatch, kLength});
    heed::Tensor before({kBatch, kLength}, heed::DType::i64);  // each token's predecessor; the first has none
    for (std::int64_t b = 0; b < kBatch; ++b)
      for (std::int64_t t = 0; t < kLength; ++t)
        before.at<std::int64_t>(b, t) = t == 0 ? -1 : ids.at<std::int64_t>(b, t - 1);

    const heed::Tensor x = model.positions.forward(model.embedding.forward(ids));
    const auto looked = model.head.forward(x, kOptions);
    const heed::Tensor logits = model.out.forward(looked.output);
    const auto loss = heed::nn::cross_entropy(logits, before, -1);
    if (step % 100 == 0)
      std::printf("step %3d: loss %.2f, weight on the token before %.2f\n", step, loss.loss,
                  looked.attention.weights.at<float>(0, 0, kLength - 1, kLength - 2));

    for (const auto& gradient : grads.parameters()) *gradient.value = heed::Tensor(gradient.value->shape());
    const heed::Tensor grad_logits = heed::nn::cross_entropy_backward(1, logits, before, loss, -1);
    const heed::Tensor grad_looked = model.out.backward(grad_logits, looked.output, grads.out);
    const heed::Tensor grad_x = model.head.backward(grad_looked, x, looked, kOptions, grads.head);
    model.positions.backward(grad_x, grads.positions);
    model.embedding.backward(grad_x, ids, grads.embedding);
    optimizer.step(model.parameters(), grads.parameters(), 3e-3);
  }
}
