// Fills tensors from a Generator. PyTorch's kernels are built with fused multiply-add. It is explicit here,
// so that every processor gives PyTorch's bits.
#include <cmath>
#include <numbers>
#include <span>
#include <type_traits>

#include "core/message.hpp"
#include "heed/random.hpp"

namespace heed {
namespace {

using detail::refuse;

void require_real(const char* function, DType dtype) {
  if (dtype != DType::f32 && dtype != DType::f64)
    refuse(function, " was asked for ", dtype, "; f32 or f64 was expected");
}

void require_target(const char* function, const MutableTensorView& tensor) {
  require_real(function, tensor.dtype());
  if (!tensor.is_contiguous())
    refuse(function, " got a tensor of shape ", tensor.shape(), " with strides ", tensor.strides(),
           "; a contiguous tensor was expected");
}

// Calls fill(span<float or double>).
template <class Fill>
void with_elements(const MutableTensorView& tensor, Fill fill) {
  const auto count = static_cast<std::size_t>(tensor.count());
  if (tensor.dtype() == DType::f32)
    fill(std::span(tensor.data_as<float>(), count));
  else
    fill(std::span(tensor.data_as<double>(), count));
}

// Uniform in [0, 1), with as many random bits as the fraction holds: one draw of 32 bits for float, of 64 for
// double.
template <class T>
T unit(Generator& generator) {
  if constexpr (std::is_same_v<T, float>)
    return static_cast<float>(generator.random32() & 0xffffffu) * 0x1p-24f;
  else
    return static_cast<double>(generator.random64() & ((std::uint64_t{1} << 53) - 1)) * 0x1p-53;
}

// Box-Muller over 8 pairs (data[j], data[j + 8]). Each step is rounded to T where PyTorch rounds. The
// functions are evaluated in double, because double results hardly differ between mathematics libraries.
template <class T>
void make_normal(std::span<T, 16> data, T mean, T std) {
  constexpr T kTwoPi = static_cast<T>(2 * std::numbers::pi);
  for (std::size_t j = 0; j < 8; ++j) {
    const T u1 = T{1} - data[j];  // (0, 1], for the logarithm
    const T theta = kTwoPi * data[j + 8];
    const T log_u1 = static_cast<T>(std::log(static_cast<double>(u1)));
    const T radius = std::sqrt(T{-2} * log_u1);
    const T cosine = static_cast<T>(std::cos(static_cast<double>(theta)));
    const T sine = static_cast<T>(std::sin(static_cast<double>(theta)));
    data[j] = std::fma(radius * cosine, std, mean);
    data[j + 8] = std::fma(radius * sine, std, mean);
  }
}

// Draws uniforms first, then transforms blocks of 16 to normals in place. An incomplete last block draws the
// last 16 again, overlapping the block before.
template <class T>
void fill_normal_in_blocks(Generator& generator, std::span<T> out, T mean, T std) {
  for (T& value : out) value = unit<T>(generator);
  for (std::size_t i = 0; i + 16 <= out.size(); i += 16)
    make_normal(std::span<T, 16>(out.subspan(i, 16)), mean, std);
  if (out.size() % 16 == 0) return;
  const std::span<T, 16> tail(out.last(16));
  for (T& value : tail) value = unit<T>(generator);
  make_normal(tail, mean, std);
}

}  // namespace

void uniform_(Generator& generator, const MutableTensorView& tensor, double from, double to) {
  require_target("uniform_", tensor);
  with_elements(tensor, [&]<class T>(std::span<T> out) {
    const T low = static_cast<T>(from);
    const T width = static_cast<T>(to) - low;
    if (!(std::isfinite(low) && std::isfinite(width) && width >= 0))
      refuse("uniform_ got the range from ", from, " to ", to, "; from <= to was expected, ",
             "both of them and their difference finite in ", tensor.dtype());
    for (T& value : out) value = std::fma(unit<T>(generator), width, low);
  });
}

void normal_(Generator& generator, const MutableTensorView& tensor, double mean, double std) {
  require_target("normal_", tensor);
  if (!(std::isfinite(mean) && std::isfinite(std) && std >= 0))
    refuse("normal_ got the mean ", mean, " and the standard deviation ", std,
           "; finite numbers were expected, the second one >= 0");
  with_elements(tensor, [&]<class T>(std::span<T> out) {
    if (out.size() >= 16)
      fill_normal_in_blocks(generator, out, static_cast<T>(mean), static_cast<T>(std));
    else
      for (T& value : out) value = static_cast<T>(generator.normal(mean, std));
  });
}

void bernoulli_(Generator& generator, const MutableTensorView& tensor, double probability) {
  require_target("bernoulli_", tensor);
  if (!(probability >= 0 && probability <= 1))
    refuse("bernoulli_ got the probability ", probability, "; a number in [0, 1] was expected");
  with_elements(tensor, [&]<class T>(std::span<T> out) {
    for (T& value : out) value = unit<double>(generator) < probability ? T{1} : T{0};
  });
}

Tensor rand(Generator& generator, const Dims& shape, DType dtype) {
  require_real("rand", dtype);
  Tensor tensor = Tensor::uninitialized(shape, dtype);
  uniform_(generator, tensor);
  return tensor;
}

Tensor randn(Generator& generator, const Dims& shape, DType dtype) {
  require_real("randn", dtype);
  Tensor tensor = Tensor::uninitialized(shape, dtype);
  normal_(generator, tensor);
  return tensor;
}

}  // namespace heed
