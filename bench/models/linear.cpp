// Products of rows and weights as in heed::Model. bench/peers/models.py compares other libraries with it.
//
//   linear ROWS INPUTS OUTPUTS DTYPE(f32|bf16|f16) THREADS SECONDS
//   linear gelu|gelu_tanh|silu COUNT THREADS SECONDS
//
// Prints the seconds of each call, one per line.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>

#include "heed/random.hpp"
#include "heed/tensor.hpp"
#include "model/layers/activations.hpp"
#include "model/layers/linear.hpp"

namespace {

using heed::DType;
using heed::Tensor;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void time_calls(double seconds, const std::function<void()>& call) {
  call();
  const double begin = now();
  for (int i = 0; i < 3 || now() - begin < seconds; ++i) {
    const double start = now();
    call();
    std::printf("%.9f\n", now() - start);
  }
}

DType dtype_named(std::string_view name) {
  return name == "bf16" ? DType::bf16 : name == "f16" ? DType::f16 : DType::f32;
}

}  // namespace

int main(int count, char** arguments) {
  const auto number = [&](int i) { return std::strtoll(arguments[i], nullptr, 10); };
  heed::Generator generator(1);
  if (count == 5) {
    const auto activation = heed::detail::activation_named(arguments[1]);
    if (!activation) return 2;
    const Tensor x = heed::randn(generator, {number(2)});
    Tensor y = Tensor::copy_of(x);
    time_calls(std::strtod(arguments[4], nullptr), [&] {
      heed::copy(x, y.mutable_view());
      activate(*activation, y, static_cast<int>(number(3)));
    });
    return 0;
  }
  if (count != 7) {
    std::fputs("linear ROWS INPUTS OUTPUTS DTYPE THREADS SECONDS | ACTIVATION COUNT THREADS SECONDS\n",
               stderr);
    return 2;
  }
  const Tensor x = heed::randn(generator, {number(1), number(2)});
  const Tensor weight =
      Tensor::copy_of(heed::randn(generator, {number(3), number(2)}), dtype_named(arguments[4]));
  heed::detail::LinearWeights weights;
  weights.weight = {weight.view().data(), heed::detail::weight_format_of(weight.dtype()), number(3),
                    number(2)};
  weights.bias = heed::randn(generator, {number(3)});
  time_calls(std::strtod(arguments[6], nullptr),
             [&] { (void)linear(x, weights, static_cast<int>(number(5))); });
  return 0;
}
