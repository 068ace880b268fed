#include "model/layers/mlp.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "heed/parallel.hpp"

namespace heed::detail {
namespace {

constexpr std::int64_t kHiddenRows = 2048;  // rows of a piece: a hidden layer of 4 x 768 takes 25 MB
constexpr std::int64_t kGatedPiece = 1 << 15;

template <class Function>
void combine(Tensor& to, const Tensor& x, int threads, Function function) {
  const auto into = to.values<float>();
  const auto from = x.values<float>();
  const auto count = std::ssize(into);
  parallel_for((count + kGatedPiece - 1) / kGatedPiece, threads, [&](std::int64_t piece, int /*worker*/) {
    const auto end = static_cast<std::size_t>(std::min(count, (piece + 1) * kGatedPiece));
    for (auto i = static_cast<std::size_t>(piece * kGatedPiece); i < end; ++i)
      into[i] = function(into[i], from[i]);
  });
}

float gated(float gate, float up, const ClampedGate& rules) {
  const float g = std::min(gate, rules.limit);
  return (std::clamp(up, -rules.limit, rules.limit) + 1) * (g / (1 + std::exp(-rules.alpha * g)));
}

// Gates and ups in turns, [R, 2 I] → [R, I].
Tensor gated_in_turns(const Tensor& both, const ClampedGate& rules) {
  Tensor made = Tensor::uninitialized({both.size(0), both.size(1) / 2}, DType::f32);
  const float* from = both.values<float>().data();
  for (float& one : made.values<float>()) {
    one = gated(from[0], from[1], rules);
    from += 2;
  }
  return made;
}

Tensor hidden_layer(const TensorView& x, const MlpWeights& weights, int threads) {
  if (weights.in_turns) return gated_in_turns(linear(x, weights.up, threads), *weights.clamped);
  Tensor hidden = linear(x, weights.gate ? *weights.gate : weights.up, threads);
  if (weights.clamped) {
    combine(hidden, linear(x, weights.up, threads), threads,
            [rules = *weights.clamped](float gate, float up) { return gated(gate, up, rules); });
    return hidden;
  }
  activate(weights.activation, hidden, threads);
  if (weights.gate)
    combine(hidden, linear(x, weights.up, threads), threads, [](float a, float b) { return a * b; });
  return hidden;
}

}  // namespace

void add_to(Tensor& to, const Tensor& x, int threads) {
  combine(to, x, threads, [](float a, float b) { return a + b; });
}

Tensor mlp(const TensorView& x, const MlpWeights& weights, int threads) {
  Tensor y = Tensor::uninitialized(x.shape(), DType::f32);
  for (std::int64_t row = 0; row < x.size(0); row += kHiddenRows) {
    const std::int64_t rows = std::min(kHiddenRows, x.size(0) - row);
    const TensorView part = x.narrow(0, row, rows);
    copy(linear(hidden_layer(part, weights, threads), weights.down, threads),
         y.mutable_view().narrow(0, row, rows));
  }
  return y;
}

namespace {

// A row that an expert takes, and the weight of the expert's output.
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
