// MT19937 (Matsumoto and Nishimura 1998, "Mersenne Twister"), seeded like the authors' init_genrand.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <span>
#include <string>
#include <utility>

#include "core/message.hpp"
#include "heed/random.hpp"

namespace heed {
namespace {

constexpr std::size_t kWords = 624;   // n of the paper
constexpr std::size_t kMiddle = 397;  // m
constexpr std::uint32_t kUpperBit = 0x80000000u;
constexpr std::uint32_t kLowerBits = 0x7fffffffu;
constexpr std::uint32_t kMatrix = 0x9908b0dfu;  // a

[[noreturn]] void refuse_state(const std::string& what) { detail::refuse("the generator's state ", what); }

}  // namespace

void Generator::manual_seed(std::uint64_t seed) {
  state_[0] = static_cast<std::uint32_t>(seed);
  for (std::size_t i = 1; i < kWords; ++i) {
    const std::uint32_t before = state_[i - 1];
    state_[i] = 1812433253u * (before ^ (before >> 30)) + static_cast<std::uint32_t>(i);
  }
  next_ = static_cast<int>(kWords);  // no words left: the first draw twists
  spare_normal_.reset();
}

void Generator::twist() {
  for (std::size_t i = 0; i < kWords; ++i) {
    const std::uint32_t joined = (state_[i] & kUpperBit) | (state_[(i + 1) % kWords] & kLowerBits);
    state_[i] = state_[(i + kMiddle) % kWords] ^ (joined >> 1) ^ ((joined & 1u) != 0 ? kMatrix : 0u);
  }
  next_ = 0;
}

std::uint32_t Generator::random32() {
  if (next_ == static_cast<int>(kWords)) twist();
  std::uint32_t word = state_[static_cast<std::size_t>(next_++)];
  word ^= word >> 11;
  word ^= (word << 7) & 0x9d2c5680u;
  word ^= (word << 15) & 0xefc60000u;
  return word ^ (word >> 18);
}

std::uint64_t Generator::random64() {
  const std::uint64_t high = random32();
  return (high << 32) | random32();
}

double Generator::normal(double mean, double std) {
  double standard = 0;
  if (spare_normal_) {
    standard = *std::exchange(spare_normal_, std::nullopt);
  } else {
    constexpr std::uint64_t kMask = (std::uint64_t{1} << 53) - 1;
    const double u1 = static_cast<double>(random64() & kMask) * 0x1p-53;
    const double u2 = static_cast<double>(random64() & kMask) * 0x1p-53;
    const double radius = std::sqrt(-2.0 * std::log1p(-u2));
    const double theta = 2.0 * std::numbers::pi * u1;
    spare_normal_ = radius * std::sin(theta);
    standard = radius * std::cos(theta);
  }
  return std::fma(standard, std, mean);
}

Tensor Generator::state() const {
  Tensor state = Tensor::uninitialized({kWords + 3}, DType::i64);
  const std::span<std::int64_t> numbers = state.values<std::int64_t>();
  std::ranges::copy(state_, numbers.begin());
  numbers[kWords] = next_;
  numbers[kWords + 1] = spare_normal_.has_value() ? 1 : 0;
  numbers[kWords + 2] = std::bit_cast<std::int64_t>(spare_normal_.value_or(0));
  return state;
}

void Generator::set_state(const TensorView& state) {
  if (state.dtype() != DType::i64 || state.shape() != Dims{kWords + 3})
    refuse_state("is " + std::string(name_of(state.dtype())) + " " + to_string(state.shape()) + "; i64 [" +
                 std::to_string(kWords + 3) + "] is expected");
  const Tensor copy = Tensor::copy_of(state);
  const std::span<const std::int64_t> numbers = copy.values<std::int64_t>();
  for (std::size_t i = 0; i < kWords; ++i)
    if (numbers[i] < 0 || numbers[i] > 0xffffffffLL)
      refuse_state("holds " + std::to_string(numbers[i]) + "; words of 32 bits are expected");
  // Only the upper bit of word 0 matters. If everything else were zero, the generator would produce only
  // zeros.
  if (std::all_of(numbers.begin() + 1, numbers.begin() + kWords, [](std::int64_t n) { return n == 0; }) &&
      (numbers[0] & kUpperBit) == 0)
    refuse_state("is zero, which generates only zeros; a nonzero state is expected");
  if (numbers[kWords] < 0 || numbers[kWords] > static_cast<std::int64_t>(kWords) ||
      (numbers[kWords + 1] & ~1) != 0)
    refuse_state("has the place " + std::to_string(numbers[kWords]) + " and the flag " +
                 std::to_string(numbers[kWords + 1]) + "; 0 to 624 and 0 or 1 are expected");
  std::transform(numbers.begin(), numbers.begin() + kWords, state_.begin(),
                 [](std::int64_t n) { return static_cast<std::uint32_t>(n); });
  next_ = static_cast<int>(numbers[kWords]);
  spare_normal_.reset();
  if (numbers[kWords + 1] == 1) spare_normal_ = std::bit_cast<double>(numbers[kWords + 2]);
}

}  // namespace heed
