#include "model/layers/mixture.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

namespace heed::detail {
namespace {

// A row that an expert takes, and the weight of what the expert makes of it.
struct Share {
  std::int64_t row;
  float weight;
};

// Adds row `row` to the lists of its experts.
void choose(const MixtureWeights& weights, std::span<const float> logits, std::int64_t row,
            std::vector<std::vector<Share>>& shares) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto chosen = order.begin() + weights.chosen;
  // A NaN counts as the smallest number, so that the order is one.
  const auto key = [&](std::size_t e) { return std::isnan(logits[e]) ? -INFINITY : logits[e]; };
  std::partial_sort(order.begin(), chosen, order.end(),
                    [&](std::size_t a, std::size_t b) { return key(a) != key(b) ? key(a) > key(b) : a < b; });
  const float largest = logits[order.front()];
  const auto end = weights.over_chosen ? chosen : order.end();
  const float sum = std::accumulate(order.begin(), end, 0.0F, [&](float total, std::size_t e) {
    return total + std::exp(logits[e] - largest);
  });
  for (auto e = order.begin(); e != chosen; ++e)
    shares[*e].push_back({row, std::exp(logits[*e] - largest) / sum});
}

Tensor rows_of_shares(const TensorView& x, std::span<const Share> shares) {
  const std::int64_t size = x.size(1);
  Tensor rows = Tensor::uninitialized({std::ssize(shares), size}, DType::f32);
  float* to = rows.values<float>().data();
  for (const Share& share : shares) to = std::copy_n(x.data_as<float>() + share.row * size, size, to);
  return rows;
}

}  // namespace

Tensor mixture(const TensorView& x, const MixtureWeights& weights, int threads) {
  const Tensor logits = linear(x, weights.router, threads);
  std::vector<std::vector<Share>> shares(weights.experts.size());
  for (std::int64_t row = 0; row < x.size(0); ++row)
    choose(weights,
           logits.values<float>().subspan(static_cast<std::size_t>(row) * shares.size(), shares.size()), row,
           shares);
  Tensor y(x.shape(), DType::f32);
  const std::int64_t size = x.size(1);
  for (std::size_t e = 0; e < shares.size(); ++e) {
    if (shares[e].empty()) continue;
    const Tensor made = mlp(rows_of_shares(x, shares[e]), weights.experts[e], threads);
    const float* from = made.values<float>().data();
    for (const Share& share : shares[e]) {
      float* to = y.values<float>().data() + share.row * size;
      for (std::int64_t i = 0; i < size; ++i) to[i] += share.weight * *from++;
    }
  }
  return y;
}

}  // namespace heed::detail
