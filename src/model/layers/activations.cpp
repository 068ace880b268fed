#include "model/layers/activations.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "attention/isa/dispatch.hpp"
#include "heed/parallel.hpp"

namespace heed::detail {
namespace {

constexpr std::int64_t kPiece = 1 << 14;

void apply_relu(float* x, std::int64_t size) {
  for (std::int64_t i = 0; i < size; ++i) x[i] = std::max(x[i], 0.0f);
}

// The function that applies the activation in place on this processor.
auto function_of(Activation activation) {
  const cpu::Products& products = cpu::kernels().all().products;
  switch (activation) {
    case Activation::gelu:
      return products.gelu;
    case Activation::gelu_tanh:
      return products.gelu_tanh;
    case Activation::silu:
      return products.silu;
    case Activation::relu:
      break;
  }
  return &apply_relu;
}

}  // namespace

std::optional<Activation> activation_named(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, Activation>, 7> kNames = {
      {{"gelu", Activation::gelu},
       {"gelu_new", Activation::gelu_tanh},
       {"gelu_pytorch_tanh", Activation::gelu_tanh},
       {"gelu_fast", Activation::gelu_tanh},
       {"relu", Activation::relu},
       {"silu", Activation::silu},
       {"swish", Activation::silu}}};
  for (const auto& [known, activation] : kNames)
    if (known == name) return activation;
  return std::nullopt;
}

void activate(Activation activation, Tensor& x, int threads) {
  const auto values = x.values<float>();
  const auto count = std::ssize(values);
  const auto apply = function_of(activation);
  parallel_for((count + kPiece - 1) / kPiece, threads, [&](std::int64_t piece, int /*worker*/) {
    const std::int64_t begin = piece * kPiece;
    apply(values.data() + begin, std::min(kPiece, count - begin));
  });
}

void cap(Tensor& x, double bound, int threads) {
  const auto values = x.values<float>();
  const auto count = std::ssize(values);
  const auto most = static_cast<float>(bound);
  parallel_for((count + kPiece - 1) / kPiece, threads, [&](std::int64_t piece, int /*worker*/) {
    for (std::int64_t i = piece * kPiece; i < std::min(count, (piece + 1) * kPiece); ++i) {
      float& value = values[static_cast<std::size_t>(i)];
      value = most * std::tanh(value / most);
    }
  });
}

}  // namespace heed::detail
