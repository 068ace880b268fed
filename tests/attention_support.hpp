// Shared by the tests of attention: inputs, and comparisons of whole tensors.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>

#include "heed/attention/attention.hpp"
#include "heed/attention/results.hpp"
#include "heed/error.hpp"
#include "processor.hpp"

namespace heed::test {

/// The reason why the fused kernel cannot run, if HEED_ISA names a target that this machine lacks; else "".
/// Any other error fails the test, and so does this one if the processor has that instruction set.
inline std::string why_not_fused() {
  const Tensor one({1, 1});
  const char* forced = std::getenv("HEED_ISA");
  const std::string refusal =
      "the environment variable HEED_ISA is '" + std::string(forced ? forced : "") + "'";
  try {
    (void)attention(one, one, one, {.kernel = Kernel::fused});
    return "";
  } catch (const Error& error) {
    const std::string message = error.what();
    if (forced == nullptr || !message.starts_with(refusal) || !is_known_isa(forced) || processor_has(forced))
      throw;
    return message;
  }
}

/// Numbers from N(0, 1).
inline Tensor normal_tensor(const Dims& shape, std::uint64_t seed, DType dtype = DType::f64) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal;
  Tensor tensor(shape, DType::f64);
  for (double& x : tensor.values<double>()) x = normal(engine);
  return Tensor::copy_of(tensor, dtype);
}

/// Whether shape, dtype and bits are the same (a NaN equals itself, and 0 differs from -0).
inline ::testing::AssertionResult same_bits(const TensorView& a, const TensorView& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype())
    return ::testing::AssertionFailure() << to_string(a.shape()) << " and " << to_string(b.shape());
  const Tensor x = Tensor::copy_of(a);
  const Tensor y = Tensor::copy_of(b);
  const auto bytes = static_cast<std::size_t>(x.count()) * size_of(x.dtype());
  if (bytes > 0 && std::memcmp(x.view().data(), y.view().data(), bytes) != 0)
    return ::testing::AssertionFailure() << "the bits differ";
  return ::testing::AssertionSuccess();
}

/// The same for each tensor of two results.
inline ::testing::AssertionResult same_bits(const AttentionResult& a, const AttentionResult& b) {
  for (const auto& [entry, member] : kResults<Tensor>)
    if (const auto same = same_bits(a.*member, b.*member); !same)
      return ::testing::AssertionFailure() << entry.name() << ": " << same.message();
  return ::testing::AssertionSuccess();
}

/// Every result that a flag requests.
inline constexpr Need kEveryNeed = [] {
  Need all = Need::none;
  for (const auto& [entry, member] : kResults<int>) all |= entry.need;
  return all;
}();

/// The largest difference between two tensors of one shape, or NaN if either contains NaN.
inline double largest_difference(const TensorView& a, const TensorView& b) {
  EXPECT_EQ(a.shape(), b.shape());
  const Tensor x = Tensor::copy_of(a, DType::f64);
  const Tensor y = Tensor::copy_of(b, DType::f64);
  double largest = 0;
  for (std::size_t i = 0; i < x.values<double>().size(); ++i) {
    const double difference = std::abs(x.values<double>()[i] - y.values<double>()[i]);
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

}  // namespace heed::test
