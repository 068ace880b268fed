#include "model/layers/mlp.hpp"

#include <algorithm>

#include "heed/parallel.hpp"

namespace heed::detail {
namespace {

constexpr std::int64_t kHiddenRows = 2048;  // rows of a piece: a hidden layer of 4 x 768 takes 25 MB
constexpr std::int64_t kGatedPiece = 1 << 15;

template <class Function>
void combine(Tensor& to, const Tensor& x, int threads, Function function) {
  const auto into = to.values<float>();
  const auto from = x.values<float>();
  const auto count = static_cast<std::int64_t>(into.size());
  parallel_for((count + kGatedPiece - 1) / kGatedPiece, threads, [&](std::int64_t piece, int /*worker*/) {
    const auto end = static_cast<std::size_t>(std::min(count, (piece + 1) * kGatedPiece));
    for (auto i = static_cast<std::size_t>(piece * kGatedPiece); i < end; ++i)
      into[i] = function(into[i], from[i]);
  });
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
    Tensor hidden = linear(part, weights.gate ? *weights.gate : weights.up, threads);
    activate(weights.activation, hidden, threads);
    if (weights.gate)
      combine(hidden, linear(part, weights.up, threads), threads, [](float a, float b) { return a * b; });
    copy(linear(hidden, weights.down, threads), y.mutable_view().narrow(0, row, rows));
  }
  return y;
}

}  // namespace heed::detail
