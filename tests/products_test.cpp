// Products with weights, and activations, on every target of this machine, compared with sums in f64.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "attention/isa/features.hpp"
#include "each_target.hpp"
#include "heed/attention/targets.hpp"
#include "heed/random.hpp"
#include "heed/tensor.hpp"
#include "model/gguf/ggml_types.hpp"
#include "model/layers/activations.hpp"
#include "model/layers/linear.hpp"
#include "support.hpp"

namespace heed::test {
namespace {

using detail::Activation;
using detail::LinearWeights;

struct Product {
  std::int64_t rows, outputs, inputs;
  bool transposed, bias;
  DType dtype;
  bool in_bf16 = false;  ///< fast, and rounded to bf16
  bool fast = false;
  std::string name() const {
    return std::to_string(rows) + " x " + std::to_string(outputs) + " x " + std::to_string(inputs) +
           (transposed ? ", transposed" : "") + (bias ? ", bias" : "");
  }
};

Tensor rounded_to_bf16(const Tensor& x) {
  return Tensor::copy_of(Tensor::copy_of(x, DType::bf16), DType::f32);
}

// Compares each sum of K + 1 products with the same in f64, whose own error is negligible.
void expect_product(const Product& call, std::uint64_t seed) {
  Generator generator(seed);
  const Tensor x = randn(generator, {call.rows, call.inputs});
  Tensor weight = randn(generator, {call.outputs, call.inputs});
  if (call.transposed) weight = std::move(weight).reshaped({call.inputs, call.outputs});
  const Tensor stored = Tensor::copy_of(weight, call.dtype), widened = Tensor::copy_of(stored, DType::f32);
  const Tensor exact = call.in_bf16 ? rounded_to_bf16(widened) : Tensor::copy_of(widened);
  const Tensor row_numbers = call.in_bf16 ? rounded_to_bf16(x) : Tensor::copy_of(x);
  LinearWeights weights;
  weights.weight = {stored.view().data(), detail::weight_format_of(call.dtype), stored.size(0),
                    stored.size(1)};
  weights.weight.fast = call.fast;
  weights.transposed = call.transposed;
  if (call.bias) weights.bias = randn(generator, {call.outputs});
  const Tensor y = linear(x, weights, 1), again = linear(x, weights, 4);
  for (std::int64_t row = 0; row < call.rows; ++row)
    for (std::int64_t n = 0; n < call.outputs; ++n) {
      double sum = call.bias ? weights.bias.at<float>(n) : 0, size = std::abs(sum);
      for (std::int64_t k = 0; k < call.inputs; ++k) {
        const double term = static_cast<double>(row_numbers.at<float>(row, k)) *
                            (call.transposed ? exact.at<float>(k, n) : exact.at<float>(n, k));
        sum += term;
        size += std::abs(term);
      }
      // The worst case: one rounding for each product and each sum.
      const double bound = size * static_cast<double>(2 * call.inputs + 2) * 0x1p-24;
      ASSERT_TRUE(std::abs(y.at<float>(row, n) - sum) <= bound)
          << call.name() << " at " << row << ", " << n << ": " << y.at<float>(row, n) << " beside " << sum;
    }
  EXPECT_EQ(std::memcmp(y.view().data(), again.view().data(), y.values<float>().size_bytes()), 0)
      << call.name() << ": other bits with four threads";
}

TEST(Products, AreSumsOfProductsAtEveryShapeAndEdge) {
  EachTarget each;
  for (const std::string& target : each.available()) {
    if (target.ends_with("emulated")) continue;  // their products are those of the target `plain`
    set_target(target);
    SCOPED_TRACE(target);
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const bool transposed : {false, true}) {
        std::uint64_t seed = 1;
        for (const std::int64_t rows : {1, 2, 3, 8, 9, 13, 37})
          for (const std::int64_t outputs : {1, 5, 33, 70})
            for (const std::int64_t inputs : {7, 259})
              expect_product({rows, outputs, inputs, transposed, outputs != 5, dtype}, ++seed);
        expect_product({1921, 3, 9, transposed, true, dtype}, 7);  // one row more than are packed together
        expect_product({2, 515, 5, transposed, true, dtype}, 8);  // and more outputs than a piece of work has
      }
  }
}

// The targets whose units multiply bf16: matrix tiles, and dot products of pairs.
bool multiplies_bf16(const std::string& target) {
  return target.starts_with("amx") || target.ends_with("bf16");
}

TEST(FastProducts, OfManyRowsAreSumsOfProductsOfBf16) {
  EachTarget each;
  for (const std::string& target : each.available()) {
    set_target(target);
    SCOPED_TRACE(target);
    const bool in_bf16 = multiplies_bf16(target);
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const bool transposed : {false, true}) {
        expect_product({3, 33, 70, transposed, true, dtype, false, true}, 1);  // few rows stay exact
        for (const std::int64_t outputs : {1, 33, 70})
          for (const std::int64_t inputs : {7, 64, 291, 544})
            expect_product(
                {outputs == 33 ? 37 : 9, outputs, inputs, transposed, outputs != 33, dtype, in_bf16, true},
                2);
        // More rows than are packed together: a whole tile of them, and one more.
        if (dtype == DType::bf16) expect_product({1937, 33, 9, transposed, true, dtype, in_bf16, true}, 3);
      }
  }
}

// Whole tiles are added to the result itself, others to a copy.
TEST(FastProducts, OfARowHaveTheSameBitsWhateverTheNumberOfRows) {
  Generator generator(4);
  const Tensor x = randn(generator, {53, 291}), weight = randn(generator, {70, 291});
  LinearWeights weights;
  weights.weight = {weight.view().data(), &detail::kStoredF32, 70, 291, true};
  weights.bias = randn(generator, {70});
  EachTarget each;
  for (const std::string& target : each.available()) {
    set_target(target);
    SCOPED_TRACE(target);
    const Tensor all = linear(x, weights, 1);
    for (const std::int64_t rows : {9, 16, 31, 48}) {
      const Tensor some = linear(x.view().narrow(0, 0, rows), weights, 2);
      EXPECT_EQ(std::memcmp(some.view().data(), all.view().data(), some.values<float>().size_bytes()), 0)
          << rows << " rows";
    }
  }
}

struct Blocks {
  std::vector<std::uint8_t> bytes;
  std::vector<float> numbers,
      sizes;  ///< sizes: |scale code| + |offset|, the terms of which a number is the sum
};

// A bound of |scale code| + |offset|, of which each number is the sum. Sixteen random codes cover at least an
// eighth of their range, so both are at most eight times the distance of the numbers, or that and the number
// itself.
std::vector<float> sizes_of(const std::vector<float>& numbers) {
  std::vector<float> sizes;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto group = numbers.begin() + static_cast<std::ptrdiff_t>(i / 16 * 16);
    const auto [least, most] = std::minmax_element(group, group + 16);
    sizes.push_back(std::abs(numbers[i]) + 16 * (*most - *least));
  }
  return sizes;
}

// Random blocks whose numbers are all finite. gguf_test.cpp compares what is read from blocks with PyPI's
// gguf.
Blocks random_blocks(const detail::WeightFormat& format, std::int64_t count, Generator& generator) {
  Blocks made;
  std::vector<float> numbers(static_cast<std::size_t>(format.values));
  std::vector<std::uint8_t> block(static_cast<std::size_t>(format.bytes));
  while (static_cast<std::int64_t>(made.numbers.size()) < count) {
    for (std::uint8_t& byte : block) byte = static_cast<std::uint8_t>(generator.random32() >> 24);
    detail::read_numbers(format, block.data(), format.values, numbers.data());
    if (!std::all_of(numbers.begin(), numbers.end(), [](float x) { return std::abs(x) < 1e9f; })) continue;
    made.bytes.insert(made.bytes.end(), block.begin(), block.end());
    made.numbers.insert(made.numbers.end(), numbers.begin(), numbers.end());
  }
  return made;
}

void expect_product_of_blocks(const detail::WeightFormat& format, std::int64_t rows, std::int64_t outputs,
                              std::int64_t inputs) {
  Generator generator(static_cast<std::uint64_t>(rows * 1000 + outputs));
  const Blocks blocks = random_blocks(format, outputs * inputs, generator);
  const std::vector<float> sizes = sizes_of(blocks.numbers);
  const Tensor x = randn(generator, {rows, inputs});
  LinearWeights weights;
  weights.weight = {blocks.bytes.data(), &format, outputs, inputs};
  weights.bias = randn(generator, {outputs});
  const Tensor y = linear(x, weights, 1), again = linear(x, weights, 4);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t n = 0; n < outputs; ++n) {
      double sum = weights.bias.at<float>(n), size = std::abs(sum);
      for (std::int64_t k = 0; k < inputs; ++k) {
        const auto at = static_cast<std::size_t>(n * inputs + k);
        sum += static_cast<double>(x.at<float>(row, k)) * static_cast<double>(blocks.numbers[at]);
        size += static_cast<double>(std::abs(x.at<float>(row, k)) * sizes[at]);
      }
      // The worst case: roundings of each number, each product and each sum.
      const double bound = size * static_cast<double>(2 * inputs + 4) * 0x1p-24;
      ASSERT_TRUE(std::abs(y.at<float>(row, n) - sum) <= bound)
          << format.name << ", " << rows << " rows, at " << row << ", " << n << ": " << y.at<float>(row, n)
          << " beside " << sum;
    }
  EXPECT_EQ(std::memcmp(y.view().data(), again.view().data(), y.values<float>().size_bytes()), 0)
      << format.name << ": other bits with four threads";
}

TEST(Products, OfQuantisedWeightsAreSumsOfProducts) {
  EachTarget each;
  for (const std::string& target : each.available()) {
    if (target.ends_with("emulated")) continue;
    set_target(target);
    SCOPED_TRACE(target);
    int formats = 0;
    for (std::uint32_t type = 0; type < 64; ++type) {
      const detail::WeightFormat* format = detail::format_of_ggml_type(type);
      if (format == nullptr || !format->block) continue;
      ++formats;
      for (const std::int64_t rows : {1, 2, 9}) expect_product_of_blocks(*format, rows, 39, 768);
    }
    EXPECT_EQ(formats, 13);
  }
}

// x[i] is scale codes[i], for the codes that are nearest; `unsure` is more than 0 where x lies halfway
// between two codes.
struct Rounded {
  double number, unsure;
};
std::vector<Rounded> rounded_to_bytes(const Tensor& x, std::int64_t row) {
  std::vector<Rounded> made;
  for (std::int64_t run = 0; run < x.size(1); run += 32) {
    double largest = 0;
    for (std::int64_t i = run; i < run + 32; ++i)
      largest = std::max(largest, std::abs(static_cast<double>(x.at<float>(row, i))));
    for (std::int64_t i = run; i < run + 32; ++i) {
      const double step = largest / 127, place = x.at<float>(row, i) / step;
      // The place is rounded twice in f32: by 2^-23 of at most 127.
      const bool halfway = std::abs(place - std::floor(place) - 0.5) < 127 * 0x1p-23;
      made.push_back({step * std::nearbyint(place), halfway ? step : 0});
    }
  }
  return made;
}

// Up to eight rows are rounded to signed bytes, more rows and all weights to bf16.
void expect_fast_product_of_blocks(const detail::WeightFormat& format, std::int64_t rows, bool in_bytes,
                                   bool in_bf16) {
  constexpr std::int64_t kOutputs = 39, kInputs = 768;
  Generator generator(static_cast<std::uint64_t>(rows));
  const Blocks blocks = random_blocks(format, kOutputs * kInputs, generator);
  const std::vector<float> sizes = sizes_of(blocks.numbers);
  const Tensor x = randn(generator, {rows, kInputs});
  Tensor numbers({kOutputs, kInputs}, DType::f32);
  std::copy(blocks.numbers.begin(), blocks.numbers.end(), numbers.values<float>().begin());
  const Tensor weight = in_bf16 ? rounded_to_bf16(numbers) : Tensor::copy_of(numbers);
  const Tensor x_in_bf16 = rounded_to_bf16(x);
  LinearWeights weights;
  weights.weight = {blocks.bytes.data(), &format, kOutputs, kInputs, true};
  const Tensor y = linear(x, weights, 1), again = linear(x, weights, 4);
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::vector<Rounded> in_codes = rounded_to_bytes(x, row);
    for (std::int64_t n = 0; n < kOutputs; ++n) {
      double sum = 0, size = 0, unsure = 0;
      for (std::int64_t k = 0; k < kInputs; ++k) {
        const Rounded& code = in_codes[static_cast<std::size_t>(k)];
        const double w = weight.at<float>(n, k);
        const double number = in_bytes  ? code.number
                              : in_bf16 ? static_cast<double>(x_in_bf16.at<float>(row, k))
                                        : static_cast<double>(x.at<float>(row, k));
        sum += number * w;
        size += std::abs(number) *
                std::max(std::abs(w), static_cast<double>(sizes[static_cast<std::size_t>(n * kInputs + k)]));
        if (in_bytes) unsure += code.unsure * std::abs(w);
      }
      // The worst case: roundings of each number, each product and each sum. Sums of 32 products of bytes are
      // exact; their scales, products and last sums are rounded at most 16 times.
      const double bound =
          size * static_cast<double>(in_bytes ? kInputs / 32 + 16 : 2 * kInputs + 4) * 0x1p-24 + unsure;
      ASSERT_TRUE(std::abs(y.at<float>(row, n) - sum) <= bound)
          << format.name << ", " << rows << " rows, at " << row << ", " << n << ": " << y.at<float>(row, n)
          << " beside " << sum;
    }
  }
  EXPECT_EQ(std::memcmp(y.view().data(), again.view().data(), y.values<float>().size_bytes()), 0)
      << format.name << ": other bits with four threads";
}

TEST(FastProducts, OfQuantisedWeightsAreSumsOfRoundedProducts) {
  EachTarget each;
  for (const std::string& target : each.available()) {
    if (target.ends_with("emulated")) continue;  // the test above runs their products
    set_target(target);
    SCOPED_TRACE(target);
    const bool in_bytes = target == "avx2" || ((target.starts_with("avx512") || target.starts_with("amx")) &&
                                               detail::cpu::processor_has("avx512_vnni"));
    for (std::uint32_t type = 0; type < 64; ++type) {
      const detail::WeightFormat* format = detail::format_of_ggml_type(type);
      if (format == nullptr || !format->block) continue;
      for (const std::int64_t rows : {1, 3, 8}) expect_fast_product_of_blocks(*format, rows, in_bytes, false);
      expect_fast_product_of_blocks(*format, 9, false, multiplies_bf16(target));
    }
  }
}

TEST(FastProducts, PassOnWhatIsNoNumber) {
  const std::vector<std::uint8_t> blocks(34 * 2 * 32, 60);  // Q8_0: scales and codes are positive
  LinearWeights weights;
  weights.weight = {blocks.data(), detail::format_of_ggml_type(8), 32, 64, true};
  for (const float wrong :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Tensor x({1, 64}, DType::f32);
    x.at<float>(0, 40) = wrong;
    EXPECT_FALSE(std::isfinite(linear(x, weights, 1).at<float>(0, 7)));
  }
}

double activated(Activation activation, double x) {
  switch (activation) {
    case Activation::gelu:
      return x * std::erfc(-x / std::sqrt(2.0)) / 2;
    case Activation::gelu_tanh:
      return x / (1 + std::exp(-2 * std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    case Activation::relu:
      return std::max(x, 0.0);
    case Activation::silu:
      return x / (1 + std::exp(-x));
  }
  return 0;
}

// Every 2003rd float, 2 million in all. The bound is that in the header.
TEST(Activations, ErrByLessThanTheirBoundOnEveryFloat) {
  EachTarget each;
  std::vector<float> all;
  const std::uint64_t step = heed::test::makes_all_calls() ? 2003 : 20011;
  for (std::uint64_t bits = 0; bits < 0x100000000; bits += step)
    if (const float x = std::bit_cast<float>(static_cast<std::uint32_t>(bits)); std::isfinite(x))
      all.push_back(x);
  for (const float x : {0.0f, -0.0f, std::numeric_limits<float>::max(), -std::numeric_limits<float>::max()})
    all.push_back(x);
  const auto count = static_cast<std::int64_t>(all.size());
  for (const std::string& target : each.available()) {
    set_target(target);
    for (const Activation activation :
         {Activation::gelu, Activation::gelu_tanh, Activation::relu, Activation::silu}) {
      Tensor x = Tensor::copy_of(TensorView(all.data(), {count}));
      activate(activation, x, 2);
      double largest = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        const double from = all[static_cast<std::size_t>(i)], exact = activated(activation, from);
        // Subnormal results have larger relative errors.
        const double error = std::abs(x.at<float>(i) - exact) / (std::abs(from) * 0x1p-21 + 0x1p-149);
        ASSERT_TRUE(error <= 1) << target << ", " << static_cast<int>(activation) << ": " << from << " gave "
                                << x.at<float>(i) << " beside " << exact;
        largest = std::max(largest, error);
      }
      RecordProperty(target + std::to_string(static_cast<int>(activation)), std::to_string(largest));
    }
  }
}

TEST(Activations, PassOnWhatIsNoNumber) {
  EachTarget each;
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinity = std::numeric_limits<float>::infinity();
  for (const std::string& target : each.available()) {
    set_target(target);
    for (const Activation activation : {Activation::gelu, Activation::gelu_tanh, Activation::silu}) {
      Tensor x({2}, DType::f32);
      x.at<float>(0) = nan;
      x.at<float>(1) = infinity;
      activate(activation, x, 1);
      EXPECT_TRUE(std::isnan(x.at<float>(0))) << target;
      EXPECT_EQ(x.at<float>(1), infinity) << target;
    }
  }
}

}  // namespace
}  // namespace heed::test
