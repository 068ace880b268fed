// Integers from a Generator. PyTorch reduces draws modulo the range, so they are slightly biased unless the
// range is a power of two.
#include <numeric>
#include <utility>

#include "core/message.hpp"
#include "heed/random.hpp"

namespace heed {
namespace {

// From this range on PyTorch uses 64 bits per number, which keeps the modulo bias below 1/16.
constexpr std::uint64_t kWideRange = std::uint64_t{1} << 28;
// From this length on PyTorch uses 64 bits per swap, and builds the permutation in the other direction.
constexpr std::int64_t kLongPermutation = 0xffffffff / 20;

}  // namespace

Tensor randint(Generator& generator, std::int64_t low, std::int64_t high, const Dims& shape) {
  if (low >= high) detail::refuse("randint got the range [", low, ", ", high, "); low < high was expected");
  // Unsigned, because the difference of two std::int64_t may overflow.
  const std::uint64_t base = static_cast<std::uint64_t>(low);
  const std::uint64_t range = static_cast<std::uint64_t>(high) - base;
  Tensor tensor = Tensor::uninitialized(shape, DType::i64);
  for (std::int64_t& value : tensor.values<std::int64_t>()) {
    const std::uint64_t draw = range >= kWideRange ? generator.random64() : generator.random32();
    value = static_cast<std::int64_t>(draw % range + base);
  }
  return tensor;
}

Tensor randperm(Generator& generator, std::int64_t n) {
  if (n < 0) detail::refuse("randperm got n = ", n, "; n >= 0 was expected");
  Tensor tensor = Tensor::uninitialized({n}, DType::i64);
  const std::span<std::int64_t> values = tensor.values<std::int64_t>();
  const auto below = [](std::uint64_t draw, std::int64_t limit) {
    return static_cast<std::size_t>(draw % static_cast<std::uint64_t>(limit));
  };
  if (n < kLongPermutation) {  // Fisher-Yates from the front
    std::iota(values.begin(), values.end(), 0);
    for (std::int64_t i = 0; i < n - 1; ++i) {
      const auto at = static_cast<std::size_t>(i);
      std::swap(values[at], values[at + below(generator.random32(), n - i)]);
    }
  } else {  // inside-out Fisher-Yates: element i goes to one of the first i + 1 places
    for (std::int64_t i = 0; i < n; ++i) {
      const std::size_t place = below(generator.random64(), i + 1);
      values[static_cast<std::size_t>(i)] = i;
      std::swap(values[static_cast<std::size_t>(i)], values[place]);
    }
  }
  return tensor;
}

}  // namespace heed
